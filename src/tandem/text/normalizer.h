// The normalizers BertNormalizer and NFC of crate tokenizers, on characters that remember where
// they came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tandem/text/character_table.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {

struct NormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents;  // not set: as lowercase
  bool lowercase = true;

  bool strips_accents() const { return strip_accents.value_or(lowercase); }
  friend bool operator==(const NormalizerOptions&, const NormalizerOptions&) = default;
};

// Normalizes a stretch of valid UTF-8 whose first character is code point `first_index` of the
// original text, into work.characters (overwritten). Steps in this order, each on the result of the
// one before:
//   clean_text            drop control characters, white space becomes U+0020;
//   handle_chinese_chars  a space on both sides of every CJK ideograph, with the ideograph's
//   source; strip_accents         canonical decomposition (NFD), then drop nonspacing marks;
//   lowercase             character by character.
void normalize(std::string_view stretch, std::uint32_t first_index,
               const NormalizerOptions& options, const CharacterTable& table, Encoding& work);

// Whether NFC leaves a valid text as it is, as far as its bytes alone show it: all its characters
// lie below U+0300.
bool is_plainly_nfc(std::string_view text);

// NFC in place of these steps: canonical decomposition, then composition. A composed character has
// the source of its first part.
void normalize_nfc(std::string_view stretch, std::uint32_t first_index, const CharacterTable& table,
                   Encoding& work);
// The same in place, for characters that other steps may have changed; `other` is scratch.
void normalize_nfc(const CharacterTable& table, std::vector<Encoding::Character>& characters,
                   std::vector<Encoding::Character>& other);

}  // namespace tandem::text
