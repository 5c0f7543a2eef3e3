#include "tandem/text/chat/jinja_functions.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/text/chat/jinja_values.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

const std::string& text_of(const JinjaValue& value, std::string_view where) {
  if (!value.is_string()) raise<DataError>("{}: found {}, expected a text", where, kind_of(value));
  return value.get_ref<const std::string&>();
}

std::string text_argument(const JinjaArguments& arguments, std::size_t position,
                          std::string_view where) {
  const JinjaValue* found = arguments.find(position, "");
  return found == nullptr || found->is_null() ? "" : text_of(*found, where);
}

// Letters of ASCII; other letters stay.
std::string cased(std::string text, int (*change)(int)) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 128) c = static_cast<char>(change(c));
  return text;
}
std::string capitalized(const std::string& text, bool each_word) {
  std::string all = cased(text, std::tolower);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool begins =
        i == 0 || (each_word && std::isalnum(static_cast<unsigned char>(all[i - 1])) == 0);
    if (begins && static_cast<unsigned char>(all[i]) < 128)
      all[i] = static_cast<char>(std::toupper(all[i]));
  }
  return all;
}

JinjaValue split_text(const std::string& text, const JinjaArguments& arguments) {
  const std::string separator = text_argument(arguments, 0, "split");
  const JinjaValue* limit = arguments.find(1, "maxsplit");
  std::int64_t left = limit == nullptr || !limit->is_number_integer() ? -1 : limit->get<int>();
  JinjaValue parts = JinjaValue::array();
  if (separator.empty()) {  // at blanks
    std::string word;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if (!is_python_space(next_code_point(text, at))) {
        word += text.substr(begin, at - begin);
        if (at < text.size()) continue;
      }
      if (!word.empty()) parts.push_back(std::exchange(word, {}));
    }
    return parts;
  }
  std::size_t begin = 0;
  for (std::size_t found = text.find(separator); found != text.npos && left != 0;
       found = text.find(separator, begin), --left) {
    parts.push_back(text.substr(begin, found - begin));
    begin = found + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

JinjaValue joined(const JinjaValue& list, const std::string& separator) {
  std::string all;
  for (std::size_t i = 0; i < list.size(); ++i)
    all += (i == 0 ? "" : separator) + output_text(list[i]);
  return all;
}

JinjaValue pairs_of(const JinjaValue& value, std::string_view where) {
  if (!value.is_object())
    raise<DataError>("{}: found {}, expected a mapping", where, kind_of(value));
  JinjaValue pairs = JinjaValue::array();
  for (const auto& [key, item] : value.items()) pairs.push_back({key, item});
  return pairs;
}

JinjaValue list_of(const JinjaValue& value) {
  if (value.is_array()) return value;
  JinjaValue all = JinjaValue::array();
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) all.push_back(key);
  } else if (value.is_string()) {
    for (std::size_t i = 0; i < length_of(value); ++i) all.push_back(item_of(value, i));
  }
  return all;
}

bool ends_or_begins(const std::string& text, const JinjaArguments& arguments, bool begins) {
  const JinjaValue* found = arguments.find(0, "");
  if (found == nullptr) raise<DataError>("startswith or endswith without a text");
  const auto one = [&](const JinjaValue& value) {
    const std::string& part = text_of(value, "startswith or endswith");
    return begins ? text.starts_with(part) : text.ends_with(part);
  };
  return found->is_array() ? std::any_of(found->begin(), found->end(), one) : one(*found);
}

}  // namespace

std::size_t JinjaArguments::positional() const { return values.size() - keywords.size(); }

const JinjaValue* JinjaArguments::find(std::size_t position, std::string_view name) const {
  if (position < positional()) return &values[position];
  for (std::size_t i = 0; i < keywords.size(); ++i)
    if (keywords[i] == name) return &values[positional() + i];
  return nullptr;
}

JinjaValue apply_filter(std::string_view name, const JinjaValue& value,
                        const JinjaArguments& arguments) {
  if (name == "trim")
    return strip_text(output_text(value), text_argument(arguments, 0, "trim"), 'b');
  if (name == "length" || name == "count") return length_of(value);
  if (name == "upper") return cased(output_text(value), std::toupper);
  if (name == "lower") return cased(output_text(value), std::tolower);
  if (name == "capitalize") return capitalized(output_text(value), false);
  if (name == "title") return capitalized(output_text(value), true);
  if (name == "string") return output_text(value);
  if (name == "safe" || name == "e" || name == "escape") return value;  // nothing is escaped
  if (name == "list") return list_of(value);
  if (name == "items" || name == "dictsort") return pairs_of(value, name);
  if (name == "first") return item_of(list_of(value), 0);
  if (name == "last") return item_of(list_of(value), -1);
  if (name == "join") return joined(list_of(value), text_argument(arguments, 0, "join"));
  if (name == "replace") {
    return replace_text(output_text(value), text_argument(arguments, 0, name),
                        text_argument(arguments, 1, name));
  }
  if (name == "default" || name == "d") {
    const JinjaValue* other = arguments.find(0, "default_value");
    const JinjaValue* replaces_false = arguments.find(1, "boolean");
    const bool replaced = is_undefined(value) ||
                          (replaces_false != nullptr && truth(*replaces_false) && !truth(value));
    if (!replaced) return value;
    return other == nullptr ? JinjaValue("") : *other;
  }
  if (name == "tojson") {
    const JinjaValue* indent = arguments.find(0, "indent");
    return python_json(value,
                       indent != nullptr && indent->is_number_integer() ? indent->get<int>() : -1);
  }
  raise<DataError>("the filter '{}' of Jinja is not supported", name);
}

bool apply_test(std::string_view name, const JinjaValue& value, const JinjaArguments& arguments) {
  if (name == "defined") return !is_undefined(value);
  if (name == "undefined") return is_undefined(value);
  if (name == "none") return !is_undefined(value) && value.is_null();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_object();
  if (name == "iterable" || name == "sequence") return value.is_structured() || value.is_string();
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is_number_integer();
  if (name == "float") return value.is_number_float();
  if (name == "boolean") return value.is_boolean();
  if (name == "true") return value.is_boolean() && value.get<bool>();
  if (name == "false") return value.is_boolean() && !value.get<bool>();
  const JinjaValue* other = arguments.find(0, "");
  if (other != nullptr && (name == "equalto" || name == "eq" || name == "sameas"))
    return value == *other;
  if (other != nullptr && name == "in") return truth(combine("in", value, *other));
  if (name == "odd" || name == "even") {
    const JinjaValue rest = combine("%", value, 2);
    return (rest == JinjaValue(0)) == (name == "even");
  }
  if (other != nullptr && name == "divisibleby")
    return combine("%", value, *other) == JinjaValue(0);
  raise<DataError>("the test '{}' of Jinja is not supported", name);
}

JinjaValue call_method(std::string_view name, const JinjaValue& value,
                       const JinjaArguments& arguments) {
  if (value.is_object()) {
    if (name == "items") return pairs_of(value, name);
    if (name == "keys") return list_of(value);
    if (name == "get") {
      const JinjaValue* key = arguments.find(0, "");
      const JinjaValue* other = arguments.find(1, "default");
      const JinjaValue found = key == nullptr ? undefined_value() : item_of(value, *key);
      if (!is_undefined(found)) return found;
      return other == nullptr ? JinjaValue(nullptr) : *other;
    }
    if (name == "values") {
      JinjaValue all = JinjaValue::array();
      for (const auto& [key, item] : value.items()) all.push_back(item);
      return all;
    }
  }
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (name == "startswith" || name == "endswith")
      return ends_or_begins(text, arguments, name == "startswith");
    if (name == "strip" || name == "lstrip" || name == "rstrip")
      return strip_text(text, text_argument(arguments, 0, name),
                        name == "strip" ? 'b' : name.front());
    if (name == "split") return split_text(text, arguments);
    if (name == "upper") return cased(text, std::toupper);
    if (name == "lower") return cased(text, std::tolower);
    if (name == "capitalize") return capitalized(text, false);
    if (name == "title") return capitalized(text, true);
    if (name == "replace") {
      return replace_text(text, text_argument(arguments, 0, name),
                          text_argument(arguments, 1, name));
    }
    if (name == "join") {
      const JinjaValue* list = arguments.find(0, "");
      if (list != nullptr) return joined(list_of(*list), text);
    }
  }
  raise<DataError>("the method '{}' of {} is not supported", name, kind_of(value));
}

}  // namespace tandem::text
