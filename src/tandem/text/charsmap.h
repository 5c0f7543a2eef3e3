// SentencePiece's precompiled normalization: a table of replacements, the normalizer "Precompiled"
// of crate tokenizers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/tokenizer.h"

namespace tandem::text {

// Immutable, so thread-safe.
class Charsmap {
 public:
  // From the bytes of SentencePiece's precompiled_charsmap: a 32-bit little-endian length, so many
  // bytes of a double-array trie (Darts), and the replacements, each ended by a NUL. Throws
  // DataError that names `path` if the parts do not fit.
  Charsmap(std::string_view bytes, const std::string& path);

  // Replaces characters in place; `other` is scratch. Each takes the place in the original of the
  // character that it replaces, as the crate deals them out (charsmap.cc).
  void apply(std::vector<Encoding::Character>& characters,
             std::vector<Encoding::Character>& other) const;

 private:
  // A character of the result. `change` is 0: it replaces one character; −n: it replaces one, and n
  // further characters vanish; 1: it was inserted.
  struct Change {
    char32_t code_point;
    std::int64_t change;
  };

  // The replacement of the shortest key that begins `text`, or nothing.
  std::optional<std::string_view> find(std::string_view text) const;
  bool replace(std::string_view text, std::int64_t old_count, std::vector<Change>& changes) const;
  bool replace_cluster(const std::vector<Encoding::Character>& characters, std::size_t begin,
                       std::size_t end, std::string& scratch, std::vector<Change>& changes) const;
  static void deal_out(const std::vector<Encoding::Character>& characters,
                       const std::vector<Change>& changes, std::vector<Encoding::Character>& out);
  bool is_plain(char32_t c) const { return c < plain_.size() && plain_[c]; }

  std::vector<std::uint32_t> units_;
  std::string replacements_;
  std::array<bool, 128> plain_{};  // ASCII characters that stay as they are
};

// The end of the extended grapheme cluster (Unicode's text segmentation) that begins at character
// `at`, except that consonants of Indic conjuncts are clusters of their own.
std::size_t grapheme_end(const std::vector<Encoding::Character>& characters, std::size_t at);

}  // namespace tandem::text
