// From tagged words to what the model reads: run_ner.py's tokenize_and_align_labels().
//
// Each word is tokenized for itself; the tokens of a sentence, cut to what fits, stand between the
// special tokens. The first token of a word carries its label, with label_all_tokens every one
// does. A word without a token (an empty text, zero-width characters) takes no part, nor does one
// that is cut off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/tasks/stored_array.h"
#include "tandem/tasks/token_classification/sentences.h"
#include "tandem/tasks/token_sequences.h"
#include "tandem/text/tokenizer.h"

namespace tandem::token_classification {

struct FeatureOptions {
  // Tokens of a sentence with the special ones; none: the tokenizer's model_max_length.
  std::optional<std::size_t> max_seq_length = {};
  std::size_t max_positions = 0;  // the longest sequence of the model
  bool label_all_tokens = false;
  std::optional<std::size_t> max_samples = {};  // the first rows only
};

// A token that carries a label.
struct Position {
  std::uint32_t token;  // index in the sequence
  std::uint32_t word;   // index in the sentence
  std::uint32_t label;  // 0 in a set without tags
};

struct FeatureStatistics {
  std::size_t num_tokens = 0;  // with the special ones
  std::size_t num_cut_sentences = 0;
  std::size_t num_cut_words = 0;    // those of which no token is left
  std::size_t num_empty_words = 0;  // those without a token
  std::vector<std::string> warnings;
};

class FeatureSet final : public tasks::TokenSequences {
 public:
  std::size_t size() const override { return token_begins_.size() - 1; }
  std::size_t num_real_tokens(std::size_t i) const override {
    return token_begins_[i + 1] - token_begins_[i] + frame_.special_tokens_of_one();
  }
  std::size_t max_seq_length() const override { return max_seq_length_; }
  std::int32_t pad_token_id() const override { return frame_.pad_id; }
  void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override;

  // In the order of the tokens.
  std::span<const Position> positions(std::size_t i) const {
    return positions_.subspan(position_begins_[i], position_begins_[i + 1] - position_begins_[i]);
  }
  // Where the positions of each sequence begin among all of the set; [size() + 1].
  std::span<const std::size_t> position_begins() const { return position_begins_.view(); }
  const FeatureStatistics& statistics() const { return statistics_; }

  // For files of features (feature_file.h).
  template <class Set, class Visit>
  static void each_field(Set& set, Visit&& visit) {
    visit(set.ids_);
    visit(set.token_begins_);
    visit(set.positions_);
    visit(set.position_begins_);
    visit(set.frame_);
    visit(set.max_seq_length_);
    visit(set.statistics_.num_tokens);
    visit(set.statistics_.num_cut_sentences);
    visit(set.statistics_.num_cut_words);
    visit(set.statistics_.num_empty_words);
    visit(set.statistics_.warnings);
  }

 private:
  friend class FeatureBuilder;

  text::SequenceTemplate frame_;
  std::size_t max_seq_length_ = 0;
  using Begins = tasks::StoredArray<std::size_t>;
  tasks::StoredArray<std::int32_t> ids_;  // without special tokens
  Begins token_begins_{std::vector<std::size_t>{0}};
  tasks::StoredArray<Position> positions_;
  Begins position_begins_{std::vector<std::size_t>{0}};
  FeatureStatistics statistics_;
};

// `names`: the labels of the model by id. The same for any number of threads. Throws DataError that
// names the row: a tag that is not among them; ConfigError when max_seq_length leaves no room.
FeatureSet build_features(const text::Tokenizer& tokenizer, const SentenceSet& sentences,
                          std::span<const std::string> names, const FeatureOptions& options,
                          ThreadPool& threads);

// Names all that features are made of in addition to the tokenizer, for keys (feature_cache.h).
std::string features_key(const SentenceSet& sentences, std::span<const std::string> names,
                         const FeatureOptions& options);

}  // namespace tandem::token_classification
