#include "tandem/text/chat/pair_prompt.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/text/chat/tokenizer_chat.h"

namespace tandem::text {
namespace {

// Throws DataError that names the missing text.
void require_both_texts(const PairPrompt& prompt) {
  const std::string base = prompt.text("a query", "a passage");
  const bool query = prompt.text("another one", "a passage") != base;
  if (query && prompt.text("a query", "another one") != base) return;
  raise<DataError>(
      "the chat template writes no {}; expected one for messages of the roles query and document, "
      "as a reranker has it",
      query ? "document" : "query");
}

// The tokens that two texts of different pairs end with; none if one text is the end of the other.
std::vector<std::int32_t> common_end(const Tokenizer& tokenizer, const PairPrompt& prompt) {
  const auto ids_of = [&](const char* filler) {
    Encoding encoding;
    tokenizer.encode(prompt.text(filler, filler), encoding);
    return std::vector<std::int32_t>(encoding.ids.begin(), encoding.ids.end());
  };
  const auto first = ids_of("0"), second = ids_of("1 2 3 4");
  const auto differ = std::mismatch(first.rbegin(), first.rend(), second.rbegin(), second.rend());
  if (differ.first == first.rend() || differ.second == second.rend()) return {};
  return {differ.first.base(), first.end()};
}

}  // namespace

PairPrompt::PairPrompt(const Tokenizer& tokenizer, std::string instruction,
                       const PairFormat& format)
    : template_(chat_template_of(tokenizer)),
      instruction_(std::move(instruction)),
      format_(format) {
  require_both_texts(*this);
  if (format_.keeps_end) end_ = common_end(tokenizer, *this);
}

std::string PairPrompt::text(std::string_view query, std::string_view passage) const {
  JinjaValue messages = JinjaValue::array();
  const auto add = [&](const char* role, std::string_view content) {
    JinjaValue message = {{"role", role}, {"content", content}};
    if (format_.structured)
      message["content"] = JinjaValue::array({{{"type", "text"}, {"text", content}}});
    messages.push_back(std::move(message));
  };
  if (!instruction_.empty()) add("system", instruction_);
  add("query", query);
  add("document", passage);
  return template_.render(messages, format_.add_generation_prompt);
}

void cut_but_keep_end(std::size_t room, std::span<const std::int32_t> end,
                      std::vector<std::int32_t>& ids) {
  if (ids.size() <= room) return;
  ids.resize(room);
  const auto kept = end.last(std::min(end.size(), room));
  std::copy(kept.begin(), kept.end(), ids.end() - static_cast<std::ptrdiff_t>(kept.size()));
}

}  // namespace tandem::text
