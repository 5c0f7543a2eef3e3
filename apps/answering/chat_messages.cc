#include "apps/answering/chat_messages.h"

#include <fmt/format.h>

#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;

const std::string& text_of(const ordered_json& object, const char* key, const std::string& where) {
  if (!object.is_object()) {
    raise<DataError>("{} is of the type {}, expected an object with role and content", where,
                     object.type_name());
  }
  if (!object.contains(key)) raise<DataError>("{} has no '{}'", where, key);
  if (!object[key].is_string()) {
    raise<DataError>("{}.{} is of the type {}, expected a text", where, key,
                     object[key].type_name());
  }
  return object[key].get_ref<const std::string&>();
}

std::string content_of(const ordered_json& content, const std::string& name) {
  constexpr const char* kExpected = R"(a text or a list of {"type": "text", "text": …})";
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    raise<DataError>("{} is of the type {}, expected {}", name, content.type_name(), kExpected);
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", name, i);
    if (content[i].is_object() && content[i].value("type", ordered_json("text")) != "text")
      raise<DataError>("{} is not a text, expected {}", where, kExpected);
    text += text_of(content[i], "text", where);
  }
  return text;
}

}  // namespace

ordered_json chat_messages(const ordered_json& value, const std::string& name) {
  if (!value.is_array() || value.empty()) {
    raise<DataError>("{} is {}, expected a list of at least one message", name,
                     value.is_array() ? "empty" : fmt::format("of the type {}", value.type_name()));
  }
  ordered_json messages = ordered_json::array();
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", name, i);
    ordered_json message = {{"role", text_of(value[i], "role", where)}};
    if (!value[i].contains("content")) raise<DataError>("{} has no 'content'", where);
    for (const auto& [key, entry] : value[i].items()) {
      if (key != "role" && key != "content") message[key] = entry;
    }
    message["content"] = content_of(value[i]["content"], where + ".content");
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace tandem::apps
