// From texts to what the model reads: tokens of a text or a pair, framed and cut to a length.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/tasks/stored_array.h"
#include "tandem/tasks/token_sequences.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text_classification {

class TextFeatures final : public tasks::TokenSequences {
 public:
  TextFeatures() = default;

  std::size_t size() const override { return lengths_.size(); }
  std::size_t num_real_tokens(std::size_t i) const override {
    const std::size_t texts = std::size_t{lengths_[i].first} + lengths_[i].second;
    return pairs_ ? frame_.tokens_of_pair(texts) : frame_.tokens_of_one(texts);
  }
  std::size_t max_seq_length() const override { return max_seq_length_; }
  std::int32_t pad_token_id() const override { return frame_.pad_id; }
  void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override;
  std::size_t num_unpooled_tokens(std::size_t i) const override {
    return unpooled_.empty() ? 0 : unpooled_[i];
  }
  // The first tokens of each feature that a pooling leaves out; empty: none. Files of features do
  // not have them.
  void set_unpooled_tokens(std::vector<std::uint32_t> tokens) { unpooled_ = std::move(tokens); }

  // Tokens of the single or first text of feature i, without special ones.
  std::span<const std::int32_t> text(std::size_t i) const {
    return ids_.view().subspan(begins_[i], lengths_[i].first);
  }
  const text::SequenceTemplate& frame() const { return frame_; }
  // Leaves out the token behind each text or pair if it is this one. Room for it was kept.
  void leave_out_end(std::int32_t token) {
    if (frame_.sep_id == token) frame_.keeps_end = false;
  }

  // How many texts were cut to fit.
  std::size_t num_truncated() const { return num_truncated_; }
  std::size_t num_tokens() const { return ids_.size() + size() * special_tokens(); }

  // For files of features (feature_file.h).
  template <class Set, class Visit>
  static void each_field(Set& set, Visit&& visit) {
    visit(set.ids_);
    visit(set.begins_);
    visit(set.lengths_);
    visit(set.frame_);
    visit(set.max_seq_length_);
    visit(set.num_truncated_);
    visit(set.pairs_);
  }

 private:
  friend class TextFeaturesBuilder;
  struct Lengths {
    std::uint32_t first = 0, second = 0;  // tokens kept of each text
  };
  std::size_t special_tokens() const {
    return pairs_ ? frame_.special_tokens_of_pair() : frame_.special_tokens_of_one();
  }

  tasks::StoredArray<std::int32_t> ids_;      // ids of all texts, without special tokens
  tasks::StoredArray<std::uint64_t> begins_;  // begin of each feature in ids_
  tasks::StoredArray<Lengths> lengths_;
  std::vector<std::uint32_t> unpooled_;
  text::SequenceTemplate frame_;
  std::size_t max_seq_length_ = 0;
  std::size_t num_truncated_ = 0;
  bool pairs_ = false;
};

// How many tokens at the begin of a text are those of `prompt`, as sentence-transformers counts
// them: the tokens of the prompt alone, framed and cut to max_seq_length, without the special one
// behind it. An empty prompt has none. Throws DataError if it is not UTF-8.
std::size_t num_prompt_tokens(const text::Tokenizer& tokenizer, std::string_view prompt,
                              std::size_t max_seq_length);

// Features of texts, or of pairs where `second` is not empty; a single text keeps its first tokens,
// a pair those that the truncation "longest_first" leaves. An empty text is one. The same for any
// number of threads. Throws DataError that names the text by location(i); InvalidArgument when
// max_seq_length has no room in addition to the special tokens.
TextFeatures build_text_features(const text::Tokenizer& tokenizer,
                                 std::span<const std::string_view> first,
                                 std::span<const std::string_view> second,
                                 std::size_t max_seq_length, ThreadPool& threads,
                                 FunctionRef<std::string(std::size_t i)> location);

// Features of `count` texts that text(i) makes; several threads call it. They have all of their
// special tokens. A text that is cut ends with the tokens `end` nevertheless. The rest is as above.
TextFeatures build_made_features(const text::Tokenizer& tokenizer, std::size_t count,
                                 FunctionRef<std::string(std::size_t i)> text,
                                 std::span<const std::int32_t> end, std::size_t max_seq_length,
                                 ThreadPool& threads,
                                 FunctionRef<std::string(std::size_t i)> location);

// Names all that features are made of in addition to the tokenizer, for keys (feature_cache.h).
std::string features_key(std::span<const std::string_view> first,
                         std::span<const std::string_view> second, std::size_t max_seq_length);

}  // namespace tandem::text_classification
