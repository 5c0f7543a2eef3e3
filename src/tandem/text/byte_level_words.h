// The words of byte-level BPE: GPT-2's, which are those of the pre-tokenizer "ByteLevel" of crate
// tokenizers, and Qwen's and Llama 3's, which a pre-tokenizer "Split" has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tandem::text {

// Patterns in the crate's regular expressions.
enum class WordRule : std::uint8_t {
  kNone,  // a text is one word
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  // Of several blanks the last goes to the word behind it.
  kGpt2,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|
  // \s*[\r\n]+|\s+(?!\S)|\s+
  kOneDigit,     // Qwen's
  kThreeDigits,  // Llama 3's: \p{N}{1,3}
};

// The rule of a pattern of "Split"; nothing for another pattern.
std::optional<WordRule> word_rule_of(std::string_view split_pattern);

// Immutable, so thread-safe.
class ByteLevelWords {
 public:
  explicit ByteLevelWords(WordRule rule);

  // The end of the word that begins at byte `at` < text.size() of a valid text; every byte is in a
  // word. Time linear in the word's length.
  std::size_t end_of_word(std::string_view text, std::size_t at) const;
  // The end of the stretch that begins at byte `at` < text.size(): one number, or everything up to
  // the next one. The pre-tokenizer "Digits" with individual_digits.
  std::size_t end_of_stretch(std::string_view text, std::size_t at) const;

 private:
  enum class Kind : std::uint8_t { kOther, kLetter, kNumber, kSpace };
  static Kind compute_kind(char32_t c);
  Kind kind(char32_t c) const { return c < kinds_.size() ? kinds_[c] : compute_kind(c); }
  std::size_t end_of_gpt2_word(std::string_view text, std::size_t at) const;
  std::size_t end_of_split_word(std::string_view text, std::size_t at) const;
  std::size_t end_of_numbers(std::string_view text, std::size_t at) const;
  std::size_t end_of_lines(std::string_view text, std::size_t at, std::size_t end) const;
  std::size_t end_of_run(std::string_view text, std::size_t at, Kind kind) const;
  std::size_t end_of_blanks(std::string_view text, std::size_t at) const;

  WordRule rule_;
  std::vector<Kind> kinds_;  // kinds of the characters of the Basic Multilingual Plane
};

}  // namespace tandem::text
