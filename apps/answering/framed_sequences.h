// Tokenized texts as a model reads them, without padding: the input of label and embedding
// requests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/tasks/token_sequences.h"
#include "tandem/text/sequence_template.h"

namespace tandem::apps {

// Texts and pairs with the special tokens of a model around them. Constant once all are added.
class FramedSequences final : public tasks::TokenSequences {
 public:
  std::size_t size() const override { return begin_.size() - 1; }
  std::size_t num_real_tokens(std::size_t i) const override { return begin_[i + 1] - begin_[i]; }
  std::size_t max_seq_length() const override { return longest_; }
  std::int32_t pad_token_id() const override { return 0; }  // nothing is padded here
  void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override {
    const auto append = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
      to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin_[i]),
                from.begin() + static_cast<std::ptrdiff_t>(begin_[i + 1]));
    };
    append(ids_, ids);
    append(types_, types);
  }

  std::size_t num_unpooled_tokens(std::size_t i) const override { return unpooled_[i]; }

  // `unpooled`: tokens of the prompt that a pooling leaves out, the special one before it included.
  void add(const text::SequenceTemplate& frame, std::span<const std::int32_t> text,
           std::size_t unpooled = 0) {
    text::append_sequence(frame, text, ids_, types_);
    end_sequence(unpooled);
  }
  // Sequence i of others.
  void add(const FramedSequences& others, std::size_t i) {
    others.append_tokens(i, ids_, types_);
    end_sequence(others.unpooled_[i]);
  }
  void add(const text::SequenceTemplate& frame, std::span<const std::int32_t> first,
           std::span<const std::int32_t> second) {
    text::append_sequence(frame, first, second, ids_, types_);
    end_sequence(0);
  }

 private:
  void end_sequence(std::size_t unpooled) {
    longest_ = std::max(longest_, ids_.size() - begin_.back());
    begin_.push_back(ids_.size());
    unpooled_.push_back(unpooled);
  }

  std::vector<std::int32_t> ids_, types_;
  std::vector<std::size_t> begin_{0}, unpooled_;
  std::size_t longest_ = 0;
};

}  // namespace tandem::apps
