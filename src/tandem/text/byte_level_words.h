// GPT-2's words, the pre-tokenizer "ByteLevel" of crate tokenizers. Its pattern, in the crate's
// regular expressions:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// so of several blanks the last goes to the word behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::text {

// Immutable, so thread-safe.
class ByteLevelWords {
 public:
  ByteLevelWords();

  // The end of the word that begins at byte `at` < text.size() of a valid text; every byte is in a
  // word. Time linear in the word's length.
  std::size_t end_of_word(std::string_view text, std::size_t at) const;

 private:
  enum class Kind : std::uint8_t { kOther, kLetter, kNumber, kSpace };
  static Kind compute_kind(char32_t c);
  Kind kind(char32_t c) const { return c < kinds_.size() ? kinds_[c] : compute_kind(c); }
  std::size_t end_of_run(std::string_view text, std::size_t at, Kind kind) const;
  std::size_t end_of_blanks(std::string_view text, std::size_t at) const;

  std::vector<Kind> kinds_;  // kinds of the characters of the Basic Multilingual Plane
};

}  // namespace tandem::text
