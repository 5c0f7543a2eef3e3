#include "tandem/tasks/corpus/text_pieces.h"

#include <algorithm>

#include "tandem/core/mappings.h"

namespace tandem::corpus {

void TextPieces::append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                               std::vector<std::int32_t>& types) const {
  const auto tokens = tokens_.subspan(static_cast<std::size_t>(begin(i)), num_real_tokens(i));
  for (const std::uint32_t token : tokens)
    ids.push_back(static_cast<std::int32_t>(token & StoredToken::kIdMask));
  types.resize(types.size() + tokens.size(), 0);
}

void TextPieces::release() const {
  constexpr std::size_t kLargeBytes = std::size_t{64} << 20;
  if (tokens_.size_bytes() >= kLargeBytes) release_pages(std::as_bytes(tokens_.view()));
}

void TextPieces::read(std::size_t i, TextPiece& piece) const {
  const auto tokens = tokens_.subspan(static_cast<std::size_t>(begin(i)), num_real_tokens(i));
  piece.ids.resize(tokens.size());
  piece.special.resize(tokens.size());
  piece.word_begins.resize(tokens.size());
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    piece.ids[k] = tokens[k] & StoredToken::kIdMask;
    piece.special[k] = (tokens[k] & StoredToken::kSpecial) != 0 ? 1 : 0;
    piece.word_begins[k] = (tokens[k] & StoredToken::kWordBegin) != 0 ? 1 : 0;
  }
}

TextPiece TextPieces::piece(std::size_t i) const {
  TextPiece piece;
  read(i, piece);
  return piece;
}

bool TextPieces::has_text(std::size_t i) const {
  const auto tokens = tokens_.subspan(static_cast<std::size_t>(begin(i)), num_real_tokens(i));
  return std::any_of(tokens.begin(), tokens.end(),
                     [](std::uint32_t token) { return (token & StoredToken::kSpecial) == 0; });
}

TextPieces TextPieces::first(std::uint64_t count) const {
  TextPieces pieces = *this;
  pieces.num_pieces_ = std::min(num_pieces_, count);
  return pieces;
}

}  // namespace tandem::corpus
