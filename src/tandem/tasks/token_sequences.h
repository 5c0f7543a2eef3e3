// The features of a task as the model sees them: sequences of tokens, and how a batch of them is
// laid out, with or without padding. Every task that reads text with an encoder has these; what a
// feature is in addition to its tokens (labels, windows, words) is the task's own.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tandem/nn/packed_batch.h"

namespace tandem::tasks {

// The three states of --pad_to_max_length.
enum class Padding {
  kNone,            // not given: the real tokens of each feature, nothing else
  kLongestOfBatch,  // false: every sequence of a batch has as many rows as its longest one
  kMaxSeqLength,    // true: every sequence has max_seq_length rows
};

Padding padding_of(std::optional<bool> pad_to_max_length);

// Sequences by index. Constant once made; any number of threads may read.
class TokenSequences {
 public:
  virtual ~TokenSequences() = default;

  virtual std::size_t size() const = 0;
  // Tokens of sequence i, the special ones among them, without padding.
  virtual std::size_t num_real_tokens(std::size_t i) const = 0;
  // The length to which kMaxSeqLength pads; no sequence is longer.
  virtual std::size_t max_seq_length() const = 0;
  virtual std::int32_t pad_token_id() const = 0;
  // The first tokens of sequence i that a pooling leaves out, those of a prompt.
  virtual std::size_t num_unpooled_tokens(std::size_t) const { return 0; }
  // Appends the num_real_tokens(i) tokens of sequence i, and as many token types.
  virtual void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                             std::vector<std::int32_t>& types) const = 0;
  // Releases the pages of tokens that were read from a large file, so that reading all of them
  // takes little memory. For every batch; nothing for other tokens.
  virtual void release() const {}
};

// Rows that each sequence of a batch of these sequences has; 0: as many as it has tokens (kNone).
std::size_t padded_sequence_rows(const TokenSequences& sequences,
                                 std::span<const std::uint32_t> indices, Padding padding);
// Rows of the whole batch.
std::size_t batch_rows(const TokenSequences& sequences, std::span<const std::uint32_t> indices,
                       Padding padding);
// The rows that a batch of `batch_size` sequences can need at most.
std::size_t max_batch_rows(const TokenSequences& sequences, Padding padding,
                           std::size_t batch_size);

// Appends sequence i to a batch, padded to `rows` rows, 0: as many as it has tokens. Its sample
// remains to be set.
void append_sequence(const TokenSequences& sequences, std::size_t i, std::size_t rows,
                     nn::PackedBatch& batch);

// Lays out the sequences `indices` in that order; `batch` is overwritten and keeps its memory.
// Padding has type 0. sample[k] = first_sample + k.
void fill_batch(const TokenSequences& sequences, std::span<const std::uint32_t> indices,
                Padding padding, std::uint64_t first_sample, nn::PackedBatch& batch);

// By length, the longest first, equal ones in order.
std::vector<std::uint32_t> by_length(const TokenSequences& sequences);

// The order in which an evaluation computes sequences. Without padding by length: batches of like
// lengths share work evenly among threads. With padding in the order of the features, as Hugging
// Face's sequential sampler: in question answering the logits of padding compete for the n best
// starts and ends, so other neighbours in a batch that is padded to its longest sequence are other
// answers.
std::vector<std::uint32_t> evaluation_order(const TokenSequences& sequences, Padding padding);

// A text that is equal for equal data and, but for chance, for no other: FNV-1a, 64 bits.
class Fingerprint {
 public:
  Fingerprint() = default;
  // Fingerprint of the tokens of all sequences and of their padding.
  Fingerprint(const TokenSequences& sequences, Padding padding);

  // Numbers; for f32 the bits.
  template <class Range>
  Fingerprint& add(const Range& values) {
    for (const auto value : values) {
      if constexpr (std::is_same_v<decltype(value), const float>) {
        hash_ ^= std::bit_cast<std::uint32_t>(value);
      } else {
        hash_ ^= static_cast<std::uint64_t>(value);
      }
      hash_ *= 0x100000001b3;
    }
    return *this;
  }
  std::string text() const;

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace tandem::tasks
