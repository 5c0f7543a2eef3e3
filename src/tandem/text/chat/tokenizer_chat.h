// The template of conversations in a tokenizer's files.
#pragma once

#include "tandem/text/chat/chat_template.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {

// With the tokenizer's special tokens. Throws DataError for a tokenizer without a template, one
// that is not supported, and one that writes bos_token where the tokenizer has none.
ChatTemplate chat_template_of(const Tokenizer& tokenizer);

}  // namespace tandem::text
