#include "tandem/text/character_table.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include "tandem/core/error.h"

namespace tandem::text {
namespace {

UChar32 uchar(char32_t c) { return static_cast<UChar32>(c); }

const icu::Normalizer2& nfd() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFDInstance(status);
  TANDEM_CHECK(U_SUCCESS(status), "ICU has no NFD data: {}", u_errorName(status));
  return *normalizer;
}

const icu::Normalizer2& nfc() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFCInstance(status);
  TANDEM_CHECK(U_SUCCESS(status), "ICU has no NFC data: {}", u_errorName(status));
  return *normalizer;
}

// Whether a version of Unicode had the code point.
bool existed_in(int version, char32_t c) {
  UVersionInfo age;
  u_charAge(uchar(c), age);
  return age[0] != 0 && age[0] <= version;
}

// General category as of Unicode 8: later code points were unassigned, and six had another category
// than today.
int category(char32_t c) {
  switch (c) {
    case 0x166d:   // Canadian syllabics chi sign
    case 0x111c9:  // Sharada sandhi mark
      return U_OTHER_PUNCTUATION;
    case 0x1734:  // Hanunoo pamudpod
      return U_NON_SPACING_MARK;
    case 0xa9bd:  // Javanese consonant sign keret
      return U_COMBINING_SPACING_MARK;
    case 0x1885:  // Mongolian baluda
    case 0x1886:  // Mongolian three baluda
      return U_OTHER_LETTER;
    default:
      break;
  }
  if (!existed_in(8, c)) return U_UNASSIGNED;
  return u_charType(uchar(c));
}

bool is_removed(char32_t c) {
  if (c == 0 || c == 0xfffd) return true;
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const int type = category(c);
  return type == U_CONTROL_CHAR || type == U_FORMAT_CHAR || type == U_PRIVATE_USE_CHAR;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
  }
  switch (category(c)) {
    case U_DASH_PUNCTUATION:
    case U_START_PUNCTUATION:
    case U_END_PUNCTUATION:
    case U_CONNECTOR_PUNCTUATION:
    case U_OTHER_PUNCTUATION:
    case U_INITIAL_PUNCTUATION:
    case U_FINAL_PUNCTUATION:
      return true;
    default:
      return false;
  }
}

// The ranges of crate tokenizers, including its 2B920 where Python's tokenizer has 2B820.
bool is_ideograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

bool decomposes(char32_t c) {
  icu::UnicodeString unused;
  return existed_in(9, c) && nfd().getDecomposition(uchar(c), unused);
}

}  // namespace

CharacterTable::CharacterTable() : flags_(0x10000) {
  for (char32_t c = 0; c < flags_.size(); ++c) flags_[c] = compute_flags(c);
}

std::uint8_t CharacterTable::compute_flags(char32_t c) {
  unsigned flags = 0;
  if (is_removed(c)) flags |= kRemoved;
  if (u_isUWhiteSpace(uchar(c))) flags |= kSpace;
  if (is_punctuation(c)) flags |= kPunctuation;
  if (is_ideograph(c)) flags |= kIdeograph;
  if (category(c) == U_NON_SPACING_MARK) flags |= kNonspacingMark;
  if (decomposes(c)) flags |= kDecomposes;
  if (to_lower(c) != c) flags |= kHasLowercase;
  if (combining_class(c) != 0) flags |= kReorders;
  return static_cast<std::uint8_t>(flags);
}

char32_t CharacterTable::compose(char32_t first, char32_t second) {
  const UChar32 both = nfc().composePair(uchar(first), uchar(second));
  return both < 0 || !existed_in(9, static_cast<char32_t>(both)) ? 0 : static_cast<char32_t>(both);
}

void CharacterTable::decompose(char32_t c, std::u32string& out) {
  icu::UnicodeString utf16;
  nfd().getDecomposition(uchar(c), utf16);
  out.clear();
  for (int32_t i = 0; i < utf16.length(); i = utf16.moveIndex32(i, 1)) {
    out += static_cast<char32_t>(utf16.char32At(i));
  }
}

char32_t CharacterTable::to_lower(char32_t c) { return static_cast<char32_t>(u_tolower(uchar(c))); }

std::uint8_t CharacterTable::combining_class(char32_t c) {
  const bool changed_since = c == 0x0eba;  // Lao sign pali virama
  return existed_in(9, c) && !changed_since ? u_getCombiningClass(uchar(c)) : std::uint8_t{0};
}

bool is_word_character(char32_t c) {
  const auto mask = U_GET_GC_MASK(uchar(c));
  return u_hasBinaryProperty(uchar(c), UCHAR_ALPHABETIC) ||
         (mask & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(uchar(c), UCHAR_JOIN_CONTROL);
}

bool is_white_space(char32_t c) { return u_isUWhiteSpace(uchar(c)); }

}  // namespace tandem::text
