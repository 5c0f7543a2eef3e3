// The samples of supervised fine-tuning: tokens, and which of them the loss reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/tasks/causal_language/causal_samples.h"

namespace tandem::supervised {

// A token of a row: its id, and whether it is a label, in 32 bits.
struct LabelledToken {
  static constexpr std::uint32_t kLabel = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kIdMask = kLabel - 1;
};

// Grows by add(), then constant. Any number of threads may read.
class SampleSequences final : public causal_language::CausalSequences {
 public:
  SampleSequences(std::size_t max_length, std::int32_t pad_token_id)
      : max_length_(max_length), pad_token_id_(pad_token_id) {}

  // At most max_length tokens, as LabelledToken.
  void add(std::span<const std::uint32_t> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    ends_.push_back(tokens_.size());
  }
  std::span<const std::uint32_t> tokens(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(tokens_).subspan(begin, ends_[i] - begin);
  }

  std::size_t size() const override { return ends_.size(); }
  std::size_t num_real_tokens(std::size_t i) const override { return tokens(i).size(); }
  std::size_t max_seq_length() const override { return max_length_; }
  std::int32_t pad_token_id() const override { return pad_token_id_; }
  void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override {
    for (const std::uint32_t token : tokens(i))
      ids.push_back(static_cast<std::int32_t>(token & LabelledToken::kIdMask));
    types.resize(types.size() + num_real_tokens(i), 0);
  }
  void append_labels(std::size_t i, std::vector<std::uint8_t>& labels) const override {
    for (const std::uint32_t token : tokens(i))
      labels.push_back((token & LabelledToken::kLabel) != 0 ? 1 : 0);
  }

 private:
  std::size_t max_length_;
  std::int32_t pad_token_id_;
  std::vector<std::uint32_t> tokens_;
  std::vector<std::size_t> ends_;
};

}  // namespace tandem::supervised
