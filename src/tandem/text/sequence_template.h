// How a family of models frames what it reads: the special tokens around one text or a pair.
//
//   BERT      [CLS] A [SEP]     [CLS] A [SEP] B [SEP]      types 0 … 0 1 … 1
//   RoBERTa   <s> A </s>        <s> A </s> </s> B </s>     types all 0
//   decoders  A                 A B                        types all 0
//   Qwen3     A <|endoftext|>   A <|endoftext|> B <|endoftext|>    of an embedding model
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
  std::int32_t sep_id = 0;  // ends it; kNoToken: the text does
  std::int32_t pad_id = 0;
  std::uint32_t num_separators = 1;      // between the texts of a pair
  std::int32_t separator_id = kNoToken;  // each of them; kNoToken: sep_id
  std::int32_t second_type_id = 1;       // token type of the second text and the end behind it
  // False: no sequence with other tokens has the end, though room for it is kept.
  bool keeps_end = true;

  // Tokens that a sequence needs room for in addition to those of its texts.
  std::size_t special_tokens_of_one() const {
    return std::size_t{cls_id != kNoToken} + std::size_t{sep_id != kNoToken};
  }
  std::size_t special_tokens_of_pair() const { return special_tokens_of_one() + num_separators; }
  // Tokens of the sequence of one text, or of a pair, with so many tokens of texts.
  std::size_t tokens_of_one(std::size_t text) const {
    const std::size_t room = special_tokens_of_one() + text;
    return room - std::size_t{leaves_out_end(room)};
  }
  std::size_t tokens_of_pair(std::size_t texts) const {
    const std::size_t room = special_tokens_of_pair() + texts;
    return room - std::size_t{leaves_out_end(room)};
  }
  // Whether a sequence with room for so many tokens has no end, though the frame has one.
  bool leaves_out_end(std::size_t room) const {
    return !keeps_end && sep_id != kNoToken && room > 1;
  }
  // Index in the sequence at which the second text begins, behind a first one of so many tokens.
  std::size_t second_begin(std::size_t first_size) const {
    return std::size_t{cls_id != kNoToken} + first_size + num_separators;
  }

  friend bool operator==(const SequenceTemplate&, const SequenceTemplate&) = default;
};

// Appends the framed sequence of one text, or of a pair, to `ids` and the type of each of its
// tokens to `type_ids`. The spans must not lie in the vectors.
void append_sequence(const SequenceTemplate& frame, std::span<const std::int32_t> text,
                     std::vector<std::int32_t>& ids, std::vector<std::int32_t>& type_ids);
void append_sequence(const SequenceTemplate& frame, std::span<const std::int32_t> first,
                     std::span<const std::int32_t> second, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& type_ids);

// Throws DataError for a sequence without tokens, `special_tokens` and those of its texts: no model
// reads an empty one.
void require_a_token(std::size_t special_tokens, std::size_t text_tokens);

// Tokens to keep of each text of a pair (from its left end) so that both fit into `room` tokens:
// Hugging Face's truncation "longest_first", as the crate `tokenizers` computes it.
std::pair<std::size_t, std::size_t> truncate_longest_first(std::size_t first, std::size_t second,
                                                           std::size_t room);

}  // namespace tandem::text
