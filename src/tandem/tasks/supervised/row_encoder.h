// Rows of supervised fine-tuning to tokens, as TRL's SFTTrainer makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/formats/table.h"
#include "tandem/text/chat/chat_template.h"
#include "tandem/text/tokenizer.h"

namespace tandem::supervised {

enum class RowForm {
  kText,        // a text
  kMessages,    // a conversation
  kCompletion,  // a prompt and its completion: texts, or conversations
};

struct EncoderOptions {
  RowForm form = RowForm::kText;
  bool conversations = false;            // of messages, instead of texts
  bool completion_only = false;          // whether the prompt has no labels
  std::optional<std::string> eos_token;  // unset: the tokenizer's
};

// A row's tokens, as LabelledToken.
struct EncodedRow {
  std::vector<std::uint32_t> tokens;
  // Tokens at the end of the prompt that are others in front of a completion.
  std::size_t changed_prompt_tokens = 0;
};

// Constant once made. Any number of threads may encode, each with its own Encoding.
class RowEncoder {
 public:
  // `tokenizer` must outlive the encoder. Throws ConfigError for a tokenizer without a token for
  // ends, and for --eos_token that is not a token; DataError where conversations have no template,
  // or one that is not supported.
  RowEncoder(const text::Tokenizer& tokenizer, const EncoderOptions& options);

  // Row `row` of the columns of the form: one, or prompt and completion. Throws DataError that
  // names the column: a missing text, a message without a role.
  EncodedRow encode(const std::vector<formats::Column>& columns, std::size_t row,
                    text::Encoding& encoding) const;

 private:
  using Ids = std::vector<std::uint32_t>;
  Ids framed(std::string_view text, text::Encoding& encoding) const;
  Ids conversation(const text::JinjaValue& messages, bool add_prompt,
                   text::Encoding& encoding) const;
  std::string with_end(std::string_view text) const;

  const text::Tokenizer& tokenizer_;
  EncoderOptions options_;
  text::TextFrame frame_;
  std::string eos_;
  std::optional<text::ChatTemplate> template_;  // of conversations
};

// Whether a column has conversations: lists of objects. "from" and "value" are names of "role" and
// "content".
bool is_conversation(const formats::Column& column);

}  // namespace tandem::supervised
