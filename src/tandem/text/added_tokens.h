// Tokens that are cut out of a text as a whole, before WordPiece sees it: "[SEP]", "[MASK]", tokens
// a user added.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/interruption.h"
#include "tandem/text/utf8.h"

namespace tandem::text {

// Fields and defaults of Hugging Face's AddedToken.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool single_word = false;  // not inside of a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = true;    // looked for in the normalized text
  bool special = false;
};

// Those that are looked for in the normalized text, or those that are not.
std::vector<AddedToken> select_added_tokens(const std::vector<AddedToken>& tokens, bool normalized);

// Finds added tokens: leftmost first, the longest where several start at one place.
class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  struct Match {
    std::size_t begin = 0, end = 0;  // bytes; with the white space taken by lstrip and rstrip
    std::int32_t id = -1;            // −1: no further match
  };
  // The first match in text[from…]; white space before `from` is never taken. Candidates are looked
  // for from byte `from` on; the text before it is context for single_word.
  Match find(std::string_view text, std::size_t from) const;

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t at) const;
  std::size_t next_candidate(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;  // longest first
  std::array<bool, 256> starts_{};  // first bytes of tokens
  int only_first_byte_ = -1;        // when all tokens share it, as "[CLS]", "[SEP]", … do
};

// Cuts added tokens out of normalized characters: calls between(begin, end) for each range without
// one, empty ones included, and token(id, begin, end) for each token, in the order of the text.
template <class Characters, class Between, class Token>
void cut_added_tokens(const AddedTokenMatcher& matcher, const Characters& characters,
                      Between&& between, Token&& token) {
  std::size_t from = 0;
  if (!matcher.empty()) {
    std::string normalized;
    std::vector<std::size_t> character_at;  // [byte] → character
    InterruptionCheck check;
    for (std::size_t i = 0; i < characters.size(); ++i) {
      check.count();
      append_utf8(characters[i].code_point, normalized);
      character_at.resize(normalized.size(), i);
    }
    character_at.push_back(characters.size());
    for (std::size_t byte = 0;;) {
      const AddedTokenMatcher::Match match = matcher.find(normalized, byte);
      if (match.id < 0) break;
      between(from, character_at[match.begin]);
      from = character_at[match.end];
      token(match.id, character_at[match.begin], from);
      byte = match.end;
    }
  }
  between(from, characters.size());
}

}  // namespace tandem::text
