#include "tandem/text/chat/tokenizer_chat.h"

#include <optional>
#include <string>

#include "tandem/core/error.h"

namespace tandem::text {
namespace {

std::string token_text(const Tokenizer& tokenizer, const std::optional<std::int32_t>& id) {
  return id ? std::string(tokenizer.token(*id)) : std::string();
}

}  // namespace

ChatTemplate chat_template_of(const Tokenizer& tokenizer) {
  const std::string& source = tokenizer.chat_template();
  if (source.empty()) {
    raise<DataError>(
        "the tokenizer has no chat template; pass a model with chat_template.jinja, or texts "
        "without roles");
  }
  const TextFrame frame = tokenizer.text_frame();
  if (!frame.begin && source.find("bos_token") != std::string::npos) {
    raise<DataError>(
        "the chat template writes bos_token, but the tokenizer puts no token in front of a text; "
        "write the token itself into the template");
  }
  try {
    return {source, ChatTokens{.bos = token_text(tokenizer, frame.begin),
                               .eos = tokenizer.eos_token(),
                               .pad = token_text(tokenizer, tokenizer.pad_token_id())}};
  } catch (const DataError& error) {
    raise<DataError>("the chat template: {}", error.what());
  }
}

}  // namespace tandem::text
