// SentencePiece's model file: a protocol buffer, of which three fields matter here. Internal to
// text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

struct SentencePieceFile {
  enum Type : std::uint64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };
  struct Piece {
    std::string_view text;
    float score = 0;
    std::uint64_t type = kNormal;
  };
  std::vector<Piece> pieces;
  std::string_view precompiled_charsmap;
  std::uint64_t model_type = 1;  // 1: unigram, 2: BPE
};

// `bytes` must outlive the result. Throws DataError that names `path` and the byte where it is not
// a message of this kind. Memory and time are linear in the bytes.
SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& path);

}  // namespace tandem::text
