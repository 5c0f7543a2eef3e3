#include "tandem/text/chat/jinja_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

std::string python_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e16) return fmt::format("{:.1f}", value);
  return fmt::format("{}", value);
}

// repr() of a text: with single quotes, where that is enough.
std::string in_quotes(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string all(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') all += '\\';
    if (c == '\n') {
      all += "\\n";
    } else {
      all += c;
    }
  }
  return all + quote;
}

std::string representation(const JinjaValue& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (!value.is_structured()) return output_text(value);
  std::string all(1, value.is_array() ? '[' : '{');
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (item != value.begin()) all += ", ";
    if (value.is_object()) all += in_quotes(item.key()) + ": ";
    all += representation(*item);
  }
  return all + (value.is_array() ? ']' : '}');
}

void dump(const JinjaValue& value, int indent, int depth, std::string& out) {
  if (!value.is_structured() || value.empty()) {
    out += value.is_number_float() ? python_number(value.get<double>()) : value.dump();
    return;
  }
  const auto line = [&](int levels) {
    if (indent >= 0) out += '\n' + std::string(static_cast<std::size_t>(indent * levels), ' ');
  };
  out += value.is_array() ? '[' : '{';
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (item != value.begin()) out += indent >= 0 ? "," : ", ";
    line(depth + 1);
    if (value.is_object()) out += JinjaValue(item.key()).dump() + ": ";
    dump(*item, indent, depth + 1, out);
  }
  line(depth);
  out += value.is_array() ? ']' : '}';
}

// The code points of a text, each as a text.
std::vector<std::string> character_texts(std::string_view text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_code_point(text, at);
    all.emplace_back(text.substr(begin, at - begin));
  }
  return all;
}

std::int64_t whole_number(const JinjaValue& value) {
  if (!value.is_number_integer())
    raise<DataError>("found {} as an index, expected a whole number", kind_of(value));
  return value.get<std::int64_t>();
}

// Python's slice.indices(): the positions that a slice visits.
std::vector<std::size_t> positions_of(std::size_t size, const JinjaValue& begin,
                                      const JinjaValue& end, const JinjaValue& step_value) {
  const std::int64_t step = step_value.is_null() ? 1 : whole_number(step_value);
  if (step == 0) raise<DataError>("found a slice with step 0");
  const auto count = static_cast<std::int64_t>(size);
  const auto bound = [&](const JinjaValue& value, std::int64_t open) {
    if (value.is_null()) return open;
    const std::int64_t at = whole_number(value);
    return std::clamp(at < 0 ? at + count : at, step > 0 ? std::int64_t{0} : std::int64_t{-1},
                      step > 0 ? count : count - 1);
  };
  const std::int64_t first = bound(begin, step > 0 ? 0 : count - 1);
  const std::int64_t last = bound(end, step > 0 ? count : -1);
  std::vector<std::size_t> all;
  for (std::int64_t at = first; step > 0 ? at < last : at > last; at += step)
    all.push_back(static_cast<std::size_t>(at));
  return all;
}

[[noreturn]] void fail_operator(std::string_view op, const JinjaValue& left,
                                const JinjaValue& right) {
  raise<DataError>("'{}' of {} and {} is not defined", op, kind_of(left), kind_of(right));
}

bool contains(const JinjaValue& all, const JinjaValue& one) {
  if (all.is_string() && one.is_string())
    return all.get_ref<const std::string&>().find(one.get_ref<const std::string&>()) !=
           std::string::npos;
  if (all.is_object()) return one.is_string() && all.contains(one.get_ref<const std::string&>());
  if (all.is_array()) return std::find(all.begin(), all.end(), one) != all.end();
  fail_operator("in", one, all);
}

bool equal(const JinjaValue& left, const JinjaValue& right) {
  if (is_undefined(left) || is_undefined(right)) return is_undefined(left) && is_undefined(right);
  return left == right;
}

bool less(std::string_view op, const JinjaValue& left, const JinjaValue& right) {
  const bool numbers = left.is_number() && right.is_number();
  if (!numbers && !(left.is_string() && right.is_string())) fail_operator(op, left, right);
  if (op == "<") return left < right;
  if (op == ">") return right < left;
  if (op == "<=") return !(right < left);
  return !(left < right);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

JinjaValue arithmetic(std::string_view op, const JinjaValue& left, const JinjaValue& right) {
  if (!left.is_number() || !right.is_number()) fail_operator(op, left, right);
  const bool whole = left.is_number_integer() && right.is_number_integer() && op != "/";
  if (op != "+" && op != "-" && op != "*" && right.get<double>() == 0)
    raise<DataError>("division by zero");
  if (!whole) {
    const double a = left.get<double>(), b = right.get<double>();
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (op == "/") return a / b;
    return op == "//" ? std::floor(a / b) : a - b * std::floor(a / b);
  }
  const auto a = left.get<std::int64_t>(), b = right.get<std::int64_t>();
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  return op == "//" ? floor_divide(a, b) : a - b * floor_divide(a, b);
}

}  // namespace

JinjaValue undefined_value() { return JinjaValue(nlohmann::detail::value_t::discarded); }

bool is_undefined(const JinjaValue& value) { return value.is_discarded(); }

bool truth(const JinjaValue& value) {
  if (is_undefined(value) || value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

std::string output_text(const JinjaValue& value) {
  if (is_undefined(value)) return "";
  if (value.is_null()) return "None";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_float()) return python_number(value.get<double>());
  return value.is_structured() ? representation(value) : value.dump();
}

std::string python_json(const JinjaValue& value, int indent) {
  if (is_undefined(value)) raise<DataError>("found an undefined value, expected one for JSON");
  std::string out;
  dump(value, indent, 0, out);
  return out;
}

std::string_view kind_of(const JinjaValue& value) {
  if (is_undefined(value)) return "an undefined value";
  if (value.is_null()) return "none";
  if (value.is_boolean()) return "a truth value";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a text";
  return value.is_array() ? "a list" : "a mapping";
}

std::size_t length_of(const JinjaValue& value) {
  if (value.is_string()) return count_code_points(value.get_ref<const std::string&>());
  if (is_undefined(value)) return 0;
  if (!value.is_structured()) raise<DataError>("found {}, which has no length", kind_of(value));
  return value.size();
}

JinjaValue slice_of(const JinjaValue& value, const JinjaValue& begin, const JinjaValue& end,
                    const JinjaValue& step) {
  if (value.is_string()) {
    const auto characters = character_texts(value.get_ref<const std::string&>());
    std::string part;
    for (const std::size_t at : positions_of(characters.size(), begin, end, step))
      part += characters[at];
    return part;
  }
  if (!value.is_array()) raise<DataError>("found {}, expected a list to slice", kind_of(value));
  JinjaValue part = JinjaValue::array();
  for (const std::size_t at : positions_of(value.size(), begin, end, step))
    part.push_back(value[at]);
  return part;
}

JinjaValue item_of(const JinjaValue& value, const JinjaValue& key) {
  if (is_undefined(value)) raise<DataError>("found an undefined value, expected one with items");
  if (value.is_object()) {
    if (!key.is_string()) return undefined_value();
    const auto found = value.find(key.get_ref<const std::string&>());
    return found == value.end() ? undefined_value() : *found;
  }
  if (!value.is_array() && !value.is_string()) return undefined_value();
  if (!key.is_number_integer()) return undefined_value();
  const auto size = static_cast<std::int64_t>(length_of(value));
  const std::int64_t index = key.get<std::int64_t>();
  const std::int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size) return undefined_value();
  if (value.is_array()) return value[static_cast<std::size_t>(at)];
  return std::string(slice_code_points(value.get_ref<const std::string&>(),
                                       static_cast<std::size_t>(at),
                                       static_cast<std::size_t>(at) + 1));
}

JinjaValue combine(std::string_view op, const JinjaValue& left, const JinjaValue& right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  if (op == "in") return contains(right, left);
  if (op == "not in") return !contains(right, left);
  if (op == "~") return output_text(left) + output_text(right);
  if (op == "<" || op == ">" || op == "<=" || op == ">=") return less(op, left, right);
  if (op == "+" && left.is_string() && right.is_string())
    return left.get_ref<const std::string&>() + right.get_ref<const std::string&>();
  if (op == "+" && left.is_array() && right.is_array()) {
    JinjaValue all = left;
    all.insert(all.end(), right.begin(), right.end());
    return all;
  }
  return arithmetic(op, left, right);
}

std::string strip_text(std::string_view text, std::string_view characters, char side) {
  const std::vector<std::string> all = character_texts(text);
  const auto goes = [&](const std::string& character) {
    if (!characters.empty()) return characters.find(character) != characters.npos;
    std::size_t at = 0;
    return is_python_space(next_code_point(character, at));
  };
  std::size_t begin = 0, end = all.size();
  while (side != 'r' && begin < end && goes(all[begin])) ++begin;
  while (side != 'l' && begin < end && goes(all[end - 1])) --end;
  return std::string(slice_code_points(text, begin, end));
}

std::string replace_text(std::string_view text, std::string_view old, std::string_view by,
                         std::int64_t count) {
  if (old.empty()) return std::string(text);
  std::string all;
  std::size_t at = 0;
  for (std::size_t found = text.find(old); found != text.npos && count != 0;
       found = text.find(old, at), --count) {
    all += text.substr(at, found - at);
    all += by;
    at = found + old.size();
  }
  all += text.substr(at);
  return all;
}

}  // namespace tandem::text
