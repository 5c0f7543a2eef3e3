// Properties of characters for the BERT normalizer and pre-tokenizer, precomputed for the Basic
// Multilingual Plane.
//
// Hugging Face's tokenizer mixes tables of several ages, as a comparison over all code points
// shows: categories of Unicode 8 (crate unicode_categories 0.1.1), decompositions and combining
// classes of Unicode 9, lower case of the newest. tandem takes all of them from ICU and lets a code
// point count only if it existed in that version (u_charAge), so that newer punctuation, marks and
// format characters are ordinary characters as they are there; the few that changed since are
// listed in character_table.cc. With ICU 72 (Unicode 15) what is left is the lower case of capital
// letters added in Unicode 16 and later (Garay, Beria Erfe and nine Latin ones).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::text {

class CharacterTable {
 public:
  enum Flag : std::uint8_t {
    kRemoved = 1,          // clean_text drops it: U+0000, U+FFFD, Cc, Cf, Co except \t \n \r
    kSpace = 2,            // Unicode White_Space
    kPunctuation = 4,      // ASCII punctuation (symbols too) and categories P*
    kIdeograph = 8,        // stands alone under handle_chinese_chars
    kNonspacingMark = 16,  // Mn: strip_accents drops it
    kDecomposes = 32,      // has a canonical decomposition
    kHasLowercase = 64,    // differs from its lower case
    kReorders = 128,       // combining class is not 0
  };

  CharacterTable();

  std::uint8_t flags(char32_t c) const { return c < flags_.size() ? flags_[c] : compute_flags(c); }

  // Full canonical decomposition of a character with kDecomposes, written over `out`.
  static void decompose(char32_t c, std::u32string& out);
  // The character that both compose to canonically; 0: none.
  static char32_t compose(char32_t first, char32_t second);
  // Lower case of a character with kHasLowercase, without regard to its neighbours: one code point,
  // or two for U+0130.
  static char32_t to_lower(char32_t c);
  static std::uint8_t combining_class(char32_t c);

 private:
  static std::uint8_t compute_flags(char32_t c);
  std::vector<std::uint8_t> flags_;
};

// \w of Rust's regular expressions: what the single_word flag of an added token calls a word
// character.
bool is_word_character(char32_t c);
// \s of Rust's regular expressions and its char::is_whitespace(): Unicode's White_Space.
bool is_white_space(char32_t c);

}  // namespace tandem::text
