#include "tandem/text/added_tokens.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tandem/core/interruption.h"
#include "tandem/text/character_table.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

// Start of the code point that ends before byte `end` > 0.
std::size_t previous(std::string_view text, std::size_t end) {
  do {
    --end;
  } while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
  return end;
}

char32_t code_point_at(std::string_view text, std::size_t at) { return next_code_point(text, at); }

}  // namespace

std::vector<AddedToken> select_added_tokens(const std::vector<AddedToken>& tokens,
                                            bool normalized) {
  std::vector<AddedToken> selected;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) selected.push_back(token);
  }
  return selected;
}

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  std::set<unsigned char> first_bytes;
  for (const AddedToken& token : tokens_) {
    first_bytes.insert(static_cast<unsigned char>(token.content[0]));
  }
  for (const unsigned char byte : first_bytes) starts_[byte] = true;
  if (first_bytes.size() == 1) only_first_byte_ = *first_bytes.begin();
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, std::size_t from) const {
  InterruptionCheck check;
  for (std::size_t at = next_candidate(text, from); at < text.size();) {
    check.count();
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      at = next_candidate(text, at + 1);
      continue;
    }
    Match match{at, at + token->content.size(), token->id};
    const bool inside_word =
        (match.begin > 0 && is_word_character(code_point_at(text, previous(text, match.begin)))) ||
        (match.end < text.size() && is_word_character(code_point_at(text, match.end)));
    if (token->single_word && inside_word) {  // skipped as a whole, like any match
      at = next_candidate(text, match.end);
      continue;
    }
    while (token->lstrip && match.begin > from &&
           is_white_space(code_point_at(text, previous(text, match.begin)))) {
      match.begin = previous(text, match.begin);
    }
    while (token->rstrip && match.end < text.size() &&
           is_white_space(code_point_at(text, match.end))) {
      next_code_point(text, match.end);
    }
    return match;
  }
  return {};
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, std::size_t at) const {
  for (const AddedToken& token : tokens_) {
    if (text.substr(at).starts_with(token.content)) return &token;
  }
  return nullptr;
}

std::size_t AddedTokenMatcher::next_candidate(std::string_view text, std::size_t from) const {
  if (only_first_byte_ >= 0) {
    const std::size_t at = text.find(static_cast<char>(only_first_byte_), from);
    return std::min(at, text.size());
  }
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

}  // namespace tandem::text
