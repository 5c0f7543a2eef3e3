// The samples of causal language models: sequences, and which of their tokens are labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/tasks/corpus/text_pieces.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::causal_language {

// Constant once made. Any number of threads may read.
class CausalSequences : public tasks::TokenSequences {
 public:
  // Appends an entry per token of sequence i: 1 for a token that the loss reads, else 0.
  virtual void append_labels(std::size_t i, std::vector<std::uint8_t>& labels) const = 0;
};

// Blocks of a corpus: every token is a label.
class Blocks final : public CausalSequences {
 public:
  explicit Blocks(corpus::TextPieces pieces) : pieces_(std::move(pieces)) {}

  std::size_t size() const override { return pieces_.size(); }
  std::size_t num_real_tokens(std::size_t i) const override { return pieces_.num_real_tokens(i); }
  std::size_t max_seq_length() const override { return pieces_.max_seq_length(); }
  std::int32_t pad_token_id() const override { return pieces_.pad_token_id(); }
  void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override {
    pieces_.append_tokens(i, ids, types);
  }
  void release() const override { pieces_.release(); }
  void append_labels(std::size_t i, std::vector<std::uint8_t>& labels) const override {
    labels.resize(labels.size() + num_real_tokens(i), 1);
  }

 private:
  corpus::TextPieces pieces_;
};

struct CausalSamples {
  std::shared_ptr<const CausalSequences> sequences;
  // Sample i is the sequences [begins[i], begins[i + 1]), which do not see each other; empty: each
  // sequence is a sample.
  std::vector<std::uint32_t> begins = {};
  // Whether the first token of a sequence, which nothing predicts, counts as a label of the mean.
  bool counts_first = true;

  std::size_t size() const {
    if (begins.empty()) return sequences == nullptr ? 0 : sequences->size();
    return begins.size() - 1;
  }
};

}  // namespace tandem::causal_language
