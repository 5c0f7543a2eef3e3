#include "tandem/tasks/supervised/row_encoder.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/tasks/supervised/sample_sequences.h"
#include "tandem/text/chat/tokenizer_chat.h"

namespace tandem::supervised {
namespace {

using formats::Column;
using text::JinjaValue;

JinjaValue value_of(const Column& column, std::size_t i) {
  if (column.is_null(i)) return nullptr;
  switch (column.kind) {
    case Column::Kind::kText:
      return column.texts[i];
    case Column::Kind::kInteger:
      return column.integers[i];
    case Column::Kind::kNumber:
      return column.numbers[i];
    case Column::Kind::kBool:
      return column.integers[i] != 0;
    case Column::Kind::kList: {
      JinjaValue list = JinjaValue::array();
      for (std::size_t k = column.begins[i]; k < column.begins[i + 1]; ++k)
        list.push_back(value_of(column.children[0], k));
      return list;
    }
    case Column::Kind::kStruct: {
      JinjaValue object = JinjaValue::object();
      for (const Column& field : column.children) object[field.name] = value_of(field, i);
      return object;
    }
    case Column::Kind::kOther:
      break;
  }
  return nullptr;
}

std::string_view text_at(const Column& column, std::size_t row) {
  if (column.kind != Column::Kind::kText) {
    raise<DataError>("column \"{}\" has the type {}, expected text", column.name, column.type);
  }
  if (column.is_null(row)) raise<DataError>("column \"{}\": the text is missing", column.name);
  return column.texts[row];
}

void rename(JinjaValue& message, const char* old, const char* name) {
  if (!message.contains(old) || message.contains(name)) return;
  JinjaValue value = message[old];
  message[name] = std::move(value);
  message.erase(old);
}

JinjaValue messages_at(const Column& column, std::size_t row) {
  if (!is_conversation(column)) {
    raise<DataError>("column \"{}\" has the type {}, expected a list of messages", column.name,
                     column.type);
  }
  JinjaValue messages = value_of(column, row);
  if (!messages.is_array() || messages.empty())
    raise<DataError>("column \"{}\": found no message, expected at least one", column.name);
  for (JinjaValue& message : messages) {
    if (message.is_object()) {
      rename(message, "from", "role");
      rename(message, "value", "content");
    }
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      raise<DataError>("column \"{}\": found a message without \"role\"", column.name);
  }
  return messages;
}

std::string end_token(const text::Tokenizer& tokenizer, const EncoderOptions& options) {
  if (!options.eos_token) {
    if (tokenizer.eos_token().empty())
      raise<ConfigError>("the tokenizer names no token for ends; pass --eos_token");
    return tokenizer.eos_token();
  }
  text::Encoding encoding;
  tokenizer.encode(*options.eos_token, encoding);
  if (encoding.ids.size() != 1 || tokenizer.token(encoding.ids[0]) != *options.eos_token) {
    raise<ConfigError>("--eos_token: found '{}', expected a token of the tokenizer",
                       *options.eos_token);
  }
  return *options.eos_token;
}

std::size_t common_prefix(const std::vector<std::uint32_t>& a,
                          const std::vector<std::uint32_t>& b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  const auto end = a.begin() + static_cast<std::ptrdiff_t>(shorter);
  return static_cast<std::size_t>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}

}  // namespace

bool is_conversation(const Column& column) {
  return column.kind == Column::Kind::kList && column.children.size() == 1 &&
         column.children[0].kind == Column::Kind::kStruct;
}

RowEncoder::RowEncoder(const text::Tokenizer& tokenizer, const EncoderOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      frame_(tokenizer.text_frame()),
      eos_(options.conversations ? "" : end_token(tokenizer, options)) {
  if (!options.conversations) return;
  if (tokenizer.chat_template().empty()) {
    raise<DataError>(
        "the rows are conversations, but the tokenizer has no chat template; pass a model with "
        "chat_template.jinja, or rows of texts");
  }
  template_.emplace(text::chat_template_of(tokenizer));
}

RowEncoder::Ids RowEncoder::framed(std::string_view text, text::Encoding& encoding) const {
  tokenizer_.encode(text, encoding);
  Ids ids;
  if (frame_.begin) ids.push_back(static_cast<std::uint32_t>(*frame_.begin));
  for (const std::int32_t id : encoding.ids) ids.push_back(static_cast<std::uint32_t>(id));
  if (frame_.end) ids.push_back(static_cast<std::uint32_t>(*frame_.end));
  return ids;
}

// apply_chat_template(): the template writes all special tokens.
RowEncoder::Ids RowEncoder::conversation(const JinjaValue& messages, bool add_prompt,
                                         text::Encoding& encoding) const {
  tokenizer_.encode(template_->render(messages, add_prompt), encoding);
  return {encoding.ids.begin(), encoding.ids.end()};
}

std::string RowEncoder::with_end(std::string_view text) const {
  return std::string(text) + (text.ends_with(eos_) ? "" : eos_);
}

EncodedRow RowEncoder::encode(const std::vector<Column>& columns, std::size_t row,
                              text::Encoding& encoding) const {
  Ids ids, prompt;
  if (options_.form == RowForm::kText) {
    ids = framed(with_end(text_at(columns[0], row)), encoding);
  } else if (options_.form == RowForm::kMessages) {
    ids = conversation(messages_at(columns[0], row), false, encoding);
  } else if (options_.conversations) {
    JinjaValue messages = messages_at(columns[0], row);
    prompt = conversation(messages, true, encoding);
    for (JinjaValue& message : messages_at(columns[1], row)) messages.push_back(std::move(message));
    ids = conversation(messages, false, encoding);
  } else {
    const std::string_view text = text_at(columns[0], row);
    prompt = framed(text, encoding);
    ids = framed(std::string(text) + with_end(text_at(columns[1], row)), encoding);
  }
  const std::size_t shared = common_prefix(prompt, ids);
  const std::size_t first_label = options_.completion_only ? shared : 0;
  for (std::size_t i = first_label; i < ids.size(); ++i) ids[i] |= LabelledToken::kLabel;
  return {.tokens = std::move(ids), .changed_prompt_tokens = prompt.size() - shared};
}

}  // namespace tandem::supervised
