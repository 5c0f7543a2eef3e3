// A tokenizer's template of conversations (chat_template.jinja), as transformers'
// apply_chat_template() reads it: the part of Jinja that such templates use.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/chat/jinja_syntax.h"

namespace tandem::text {

// Special tokens as the template names them; "" where the tokenizer has none.
struct ChatTokens {
  std::string bos = {}, eos = {}, pad = {}, unk = {};
};

// Constant once made. Any number of threads may render.
class ChatTemplate {
 public:
  // Throws DataError that names the line: a syntax error, or a statement that is not supported.
  ChatTemplate(std::string_view source, ChatTokens tokens);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // The text of a conversation: a list of mappings with "role" and "content".
  // add_generation_prompt: with the begin of the assistant's turn behind it. There are no tools and
  // no date: templates that ask whether strftime_now is defined take their own. Throws DataError:
  // what the template raises, and functions, filters, tests and methods that are not supported.
  std::string render(const JinjaValue& messages, bool add_generation_prompt) const;

 private:
  std::vector<JinjaStatement> statements_;
  ChatTokens tokens_;
};

}  // namespace tandem::text
