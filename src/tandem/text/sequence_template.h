// How a family of models frames what it reads: the special tokens around one text or a pair.
//
//   BERT      [CLS] A [SEP]     [CLS] A [SEP] B [SEP]      types 0 … 0 1 … 1
//   RoBERTa   <s> A </s>        <s> A </s> </s> B </s>     types all 0
//   Qwen3     A <|endoftext|>                              of an embedding model; others: A
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tandem::text {

struct SequenceTemplate {
  static constexpr std::int32_t kNoToken = -1;

  std::int32_t cls_id = 0;  // begins every sequence; kNoToken: the text does
  std::int32_t sep_id = 0;  // ends it, and stands between the texts of a pair; kNoToken: nothing
  std::int32_t pad_id = 0;
  std::uint32_t num_separators = 1;  // between the texts of a pair
  std::int32_t second_type_id = 1;   // token type of the second text and the separator behind it

  std::size_t special_tokens_of_one() const {
    return std::size_t{cls_id != kNoToken} + std::size_t{sep_id != kNoToken};
  }
  // The frame must have both tokens, as for everything below about pairs.
  std::size_t special_tokens_of_pair() const { return special_tokens_of_one() + num_separators; }
  // Index in the sequence at which the second text begins, behind a first one of so many tokens.
  std::size_t second_begin(std::size_t first_size) const { return 1 + first_size + num_separators; }

  friend bool operator==(const SequenceTemplate&, const SequenceTemplate&) = default;
};

// Appends the framed sequence of one text, or of a pair, to `ids` and the type of each of its
// tokens to `type_ids`. The spans must not lie in the vectors.
void append_sequence(const SequenceTemplate& frame, std::span<const std::int32_t> text,
                     std::vector<std::int32_t>& ids, std::vector<std::int32_t>& type_ids);
void append_sequence(const SequenceTemplate& frame, std::span<const std::int32_t> first,
                     std::span<const std::int32_t> second, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& type_ids);

// Throws DataError for a text without tokens in a frame without any: no model reads an empty
// sequence.
void require_a_token(const SequenceTemplate& frame, std::span<const std::int32_t> text);

// Tokens to keep of each text of a pair (from its left end) so that both fit into `room` tokens:
// Hugging Face's truncation "longest_first", as the crate `tokenizers` computes it.
std::pair<std::size_t, std::size_t> truncate_longest_first(std::size_t first, std::size_t second,
                                                           std::size_t room);

}  // namespace tandem::text
