// From questions to what the model reads: windows over the context, labels, batches. run_qa.py's
// prepare_*_features.
//
// A feature is a question and a window of its context, framed as the tokenizer frames pairs (BERT:
// [CLS] question [SEP] window [SEP]); a context that does not fit gives several features whose
// windows overlap by doc_stride tokens. Nothing is padded or copied here: every distinct question
// and context is tokenized once into one array, and a feature is a few numbers that point into it.
// tasks::fill_batch() lays out the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/data/question_example.h"
#include "tandem/tasks/stored_array.h"
#include "tandem/tasks/token_sequences.h"
#include "tandem/text/tokenizer.h"

namespace tandem::question_answering {

using tasks::Padding;

struct FeatureOptions {
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  std::size_t max_seq_length = 384;
  std::size_t max_positions = kAll;  // ModelConfig::max_tokens(): no feature is longer
  std::size_t doc_stride = 128;      // overlap of neighbouring windows, in tokens
  bool labels = true;                // training; false: evaluation and prediction
  // Decides the feature length that the labels see, see FeatureStatistics.
  Padding padding = Padding::kNone;
  bool fix_last_token_labels = false;
  bool skip_unusable = false;  // leave examples out, and count them, where an error would be thrown
  // HF's max_*_samples: first so many examples, then first so many features.
  std::size_t max_samples = kAll;
};

struct Feature {
  std::uint32_t example;       // index in the QuestionSet
  std::uint32_t window_begin;  // first token of the window, counted in context tokens
  std::uint32_t window_size;   // context tokens in the window
  // Labels: index in the sequence, 0 ([CLS]) when the answer is not in the window. Also 0 without
  // labels.
  std::uint32_t start_position;
  std::uint32_t end_position;
};

struct FeatureStatistics {
  std::size_t num_examples = 0;     // after max_samples
  std::size_t num_real_tokens = 0;  // over all features
  std::size_t num_cls_labels = 0;   // features without their answer
  std::size_t num_unusable = 0;     // examples left out by skip_unusable
  // Features whose answer starts in the last token of the window. run_qa.py labels their start with
  // the last position of the padded (Padding::kMaxSeqLength) or real sequence; so does tandem
  // unless fix_last_token_labels is set.
  std::size_t num_last_token_labels = 0;
  std::vector<std::string> warnings;  // for the console, e.g. that max_seq_length was clipped
  // For the console, e.g. the columns that the questions were read from.
  std::vector<std::string> sources = {};
};

class FeatureSet final : public tasks::TokenSequences {
 public:
  std::size_t size() const override { return features_.size(); }
  const Feature& operator[](std::size_t i) const { return features_[i]; }
  std::span<const Feature> features() const { return features_.view(); }
  const FeatureStatistics& statistics() const { return statistics_; }
  void set_sources(std::vector<std::string> sources) { statistics_.sources = std::move(sources); }
  // Memory of the features and tokens, in bytes: heap, or a part of a mapped file (feature_file.h).
  std::size_t bytes() const;
  // The options' max_seq_length, clipped to the model's positions and the tokenizer's
  // model_max_length.
  std::size_t max_seq_length() const override { return max_seq_length_; }

  // Tokens of feature i with the special tokens, without padding.
  std::size_t num_real_tokens(std::size_t i) const override;
  // Sequence index of the first context token; the window's tokens are
  // [first_context_token, first_context_token + window_size).
  std::size_t first_context_token(std::size_t i) const;
  std::span<const std::int32_t> question_tokens(std::size_t i) const;
  std::span<const std::int32_t> window_tokens(std::size_t i) const;
  // Question and window in their frame().
  void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override;
  // Code points of the context that each token of the window covers.
  std::span<const text::Span> window_offsets(std::size_t i) const;

  // The special tokens around question and window.
  const text::SequenceTemplate& frame() const { return frame_; }
  std::int32_t pad_token_id() const override { return frame_.pad_id; }

  // For files of features (feature_file.h).
  template <class Set, class Visit>
  static void each_field(Set& set, Visit&& visit) {
    visit(set.features_);
    visit(set.questions_);
    visit(set.context_of_);
    visit(set.contexts_);
    visit(set.question_ids_);
    visit(set.context_ids_);
    visit(set.context_offsets_);
    visit(set.statistics_.num_examples);
    visit(set.statistics_.num_real_tokens);
    visit(set.statistics_.num_cls_labels);
    visit(set.statistics_.num_unusable);
    visit(set.statistics_.num_last_token_labels);
    visit(set.statistics_.warnings);
    visit(set.statistics_.sources);
    visit(set.max_seq_length_);
    visit(set.frame_);
  }

 private:
  friend class FeatureBuilder;
  struct Tokens {  // a range of ids and, for contexts, of offsets
    std::uint64_t begin;
    std::uint64_t size;
  };

  tasks::StoredArray<Feature> features_;
  tasks::StoredArray<Tokens> questions_;          // per example
  tasks::StoredArray<std::uint32_t> context_of_;  // per example: index in contexts_
  tasks::StoredArray<Tokens> contexts_;           // per distinct context
  tasks::StoredArray<std::int32_t> question_ids_, context_ids_;
  tasks::StoredArray<text::Span> context_offsets_;
  FeatureStatistics statistics_;
  std::size_t max_seq_length_ = 0;
  text::SequenceTemplate frame_;
};

// Tokenizes the questions (left-stripped) and contexts and cuts the features, ordered by example,
// then window; the same for any number of threads. Throws DataError naming the example's id:
// question too long for max_seq_length, doc_stride not smaller than the room for the context, and,
// with labels, a context without a token or an empty answer at position 0; InvalidArgument if
// max_seq_length has no room for anything; Interrupted soon after the calling thread's scope is
// stopped (core/interruption.h).
FeatureSet build_features(const text::Tokenizer& tokenizer,
                          std::span<const data::QuestionExample> examples,
                          const FeatureOptions& options, ThreadPool& threads);

}  // namespace tandem::question_answering
