#include "tandem/text/chat/jinja_functions.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <charconv>
#include <cmath>
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

// As Python's str, with all letters of Unicode.
std::string upper(std::string_view text) {
  std::string result;
  return icu::UnicodeString::fromUTF8(text).toUpper(icu::Locale::getRoot()).toUTF8String(result);
}
std::string lower(std::string_view text) {
  std::string result;
  return icu::UnicodeString::fromUTF8(text).toLower(icu::Locale::getRoot()).toUTF8String(result);
}

// Upper case for each character behind one for which `begins` holds, and for the first one.
template <class Begins>
std::string capitalized(const std::string& text, Begins&& begins) {
  std::string all;
  bool is_first = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(text, at);
    const std::string_view one = std::string_view(text).substr(begin, at - begin);
    all += is_first ? upper(one) : lower(one);
    is_first = begins(c);
  }
  return all;
}
// str.capitalize(), which the filter is, too.
std::string capitalize(const std::string& text) {
  return capitalized(text, [](char32_t) { return false; });
}
// str.title().
std::string title_method(const std::string& text) {
  return capitalized(
      text, [](char32_t c) { return !u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED); });
}
// The filter has words of its own.
std::string title_filter(const std::string& text) {
  return capitalized(text, [](char32_t c) {
    return is_python_space(c) || (c < 128 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                                 std::string_view::npos);
  });
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

// By the keys, without regard to case; equal ones in their order.
JinjaValue sorted_pairs(const JinjaValue& value) {
  JinjaValue pairs = pairs_of(value, "dictsort");
  std::stable_sort(pairs.begin(), pairs.end(), [](const JinjaValue& left, const JinjaValue& right) {
    return lower(left[0].get_ref<const std::string&>()) <
           lower(right[0].get_ref<const std::string&>());
  });
  return pairs;
}

std::string replaced(const std::string& text, const JinjaArguments& arguments) {
  const JinjaValue* count = arguments.find(2, "count");
  return replace_text(text, text_argument(arguments, 0, "replace"),
                      text_argument(arguments, 1, "replace"),
                      count != nullptr && count->is_number_integer() ? count->get<int>() : -1);
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

// select, reject, selectattr and rejectattr: the items for which a test holds, or does not.
JinjaValue selected(std::string_view filter, const JinjaValue& value,
                    const JinjaArguments& arguments) {
  const bool by_attribute = filter.ends_with("attr");
  const std::size_t position = by_attribute ? 1 : 0;
  const JinjaValue* const test = arguments.find(position, "");
  JinjaArguments of_test;
  if (const JinjaValue* other = arguments.find(position + 1, "")) of_test.values = {*other};
  JinjaValue kept = JinjaValue::array();
  for (const JinjaValue& item : list_of(value)) {
    const JinjaValue tested =
        by_attribute ? item_of(item, text_argument(arguments, 0, filter)) : item;
    const bool holds =
        test == nullptr ? truth(tested) : apply_test(text_of(*test, filter), tested, of_test);
    if (holds == filter.starts_with("select")) kept.push_back(item);
  }
  return kept;
}

// map(attribute=NAME), or map(FILTER).
JinjaValue mapped(const JinjaValue& value, const JinjaArguments& arguments) {
  const JinjaValue* const attribute = arguments.find(arguments.positional(), "attribute");
  JinjaArguments of_filter;
  if (const JinjaValue* other = arguments.find(1, "")) of_filter.values = {*other};
  JinjaValue all = JinjaValue::array();
  for (const JinjaValue& item : list_of(value)) {
    all.push_back(attribute != nullptr
                      ? item_of(item, *attribute)
                      : apply_filter(text_argument(arguments, 0, "map"), item, of_filter));
  }
  return all;
}

// int(value); 0 for a value that is not a number.
std::int64_t integer_of(const JinjaValue& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  double number = 0;
  if (value.is_number()) {
    number = value.get<double>();
  } else if (value.is_string()) {
    const std::string text = strip_text(value.get_ref<const std::string&>(), "", 'b');
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return 0;
  }
  constexpr double kMost = 1e15;  // exact, and far from the ends of the type
  return std::abs(number) < kMost ? static_cast<std::int64_t>(number) : 0;
}

// A filter that takes no such argument would give another value than Jinja's.
void require_plain(std::string_view filter, const JinjaArguments& arguments, std::size_t most) {
  if (arguments.values.size() > most)
    raise<DataError>("the filter '{}' of Jinja with {} arguments is not supported", filter,
                     arguments.values.size());
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
  if (name == "upper") return upper(output_text(value));
  if (name == "lower") return lower(output_text(value));
  if (name == "capitalize") return capitalize(output_text(value));
  if (name == "title") return title_filter(output_text(value));
  if (name == "string") return output_text(value);
  if (name == "safe" || name == "e" || name == "escape") return value;  // nothing is escaped
  if (name == "list") return list_of(value);
  if (name == "items") return pairs_of(value, name);
  if (name == "dictsort") {
    require_plain(name, arguments, 0);
    return sorted_pairs(value);
  }
  if (name == "first") return item_of(list_of(value), 0);
  if (name == "last") return item_of(list_of(value), -1);
  if (name == "join") {
    require_plain(name, arguments, 1);
    return joined(list_of(value), text_argument(arguments, 0, "join"));
  }
  if (name == "replace") return replaced(output_text(value), arguments);
  if (name == "reverse") return slice_of(value, nullptr, nullptr, -1);
  if (name == "map") return mapped(value, arguments);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return selected(name, value, arguments);
  if (name == "int") return integer_of(value);
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
  if (name == "number") return value.is_number() || value.is_boolean();
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
    if (name == "upper") return upper(text);
    if (name == "lower") return lower(text);
    if (name == "capitalize") return capitalize(text);
    if (name == "title") return title_method(text);
    if (name == "replace") return replaced(text, arguments);
    if (name == "join") {
      const JinjaValue* list = arguments.find(0, "");
      if (list != nullptr) return joined(list_of(*list), text);
    }
  }
  raise<DataError>("the method '{}' of {} is not supported", name, kind_of(value));
}

}  // namespace tandem::text
