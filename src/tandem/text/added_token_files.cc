#include "tandem/text/added_token_files.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/text/tokenizer_files.h"
#include "tandem/text/tokenizer_json.h"

namespace tandem::text {

AddedToken parse_added_token(const Json& json, const std::filesystem::path& path, bool special) {
  AddedToken token;
  if (json.is_string()) {
    token.content = json.get<std::string>();
    token.special = special;
    token.normalized = !special;
    return token;
  }
  if (member(json, "content").is_null())
    raise<DataError>("'{}': an added token without \"content\": {}", path.string(), json.dump());
  token.content = value_or<std::string>(json, "content", "", path);
  token.id = value_or<std::int32_t>(json, "id", 0, path);
  token.single_word = value_or(json, "single_word", false, path);
  token.lstrip = value_or(json, "lstrip", false, path);
  token.rstrip = value_or(json, "rstrip", false, path);
  token.special = value_or(json, "special", special, path);
  token.normalized = value_or(json, "normalized", !token.special, path);
  return token;
}

void keep_last_of_each(std::vector<AddedToken>& tokens) {
  std::erase_if(tokens, [](const AddedToken& token) { return token.content.empty(); });
  std::unordered_map<std::string_view, std::size_t> last;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto [found, is_new] = last.try_emplace(tokens[i].content, i);
    if (is_new) continue;
    AddedToken& token = tokens[i];
    if (token.id == kNoTokenId) token.id = tokens[found->second].id;
    found->second = i;
  }
  std::vector<AddedToken> kept;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (last.at(tokens[i].content) == i) kept.push_back(tokens[i]);
  }
  tokens = std::move(kept);
}

void number_added_tokens(const TokenIds& ids, std::size_t vocabulary,
                         std::vector<AddedToken>& tokens) {
  auto next = static_cast<std::int32_t>(vocabulary);
  for (const AddedToken& token : tokens)
    if (token.id < static_cast<std::int32_t>(kMostTokenIds)) next = std::max(next, token.id + 1);
  for (AddedToken& token : tokens) {
    if (token.id != kNoTokenId) continue;
    const auto found = ids.find(token.content);
    token.id = found != ids.end() ? found->second : next++;
  }
}

void check_added_tokens(const TokenIds& ids, std::size_t vocabulary,
                        const std::vector<AddedToken>& tokens, const std::filesystem::path& path) {
  const std::size_t most = most_ids(vocabulary + tokens.size());
  for (const AddedToken& token : tokens) {
    const auto found = ids.find(token.content);
    if (token.id < 0 || static_cast<std::size_t>(token.id) >= most) {
      raise<DataError>("'{}': added token \"{}\" has the id {}, expected 0 to {}", path.string(),
                       token.content, token.id, most - 1);
    }
    if (found != ids.end() && found->second != token.id) {
      raise<DataError>("'{}': added token \"{}\" has the id {}, but the vocabulary gives it {}",
                       path.string(), token.content, token.id, found->second);
    }
  }
}

}  // namespace tandem::text
