#include "tandem/core/python_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem {
namespace {

// The shortest digits of |value| that read back as it, without a point, and the decimal exponent of
// the first one.
struct Decimal {
  std::string digits;
  int exponent;
};

Decimal shortest_decimal(double value) {
  std::array<char, 40> text{};  // ends with a zero for atoi
  const auto result = std::to_chars(text.data(), text.data() + text.size(), std::fabs(value),
                                    std::chars_format::scientific);
  const std::string_view scientific(text.data(), result.ptr);  // d.ddde±xx
  const std::size_t e = scientific.find('e');
  Decimal decimal{std::string(1, scientific[0]), std::atoi(scientific.data() + e + 1)};
  if (e > 2) decimal.digits += scientific.substr(2, e - 2);
  return decimal;
}

class Writer {
 public:
  explicit Writer(const PythonJsonOptions& options) : options_(options) {}

  void write(const nlohmann::ordered_json& value) {
    switch (value.type()) {
      case nlohmann::ordered_json::value_t::object:
        return write_object(value);
      case nlohmann::ordered_json::value_t::array:
        return write_array(value);
      case nlohmann::ordered_json::value_t::string:
        return write_string(value.get_ref<const std::string&>());
      case nlohmann::ordered_json::value_t::number_float:
        return write_float(value.get<double>());
      default:
        out_ += value.dump();  // null, true, false and integers look alike in both languages
    }
  }

  void write_string(std::string_view text) {
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte < 0x80) {
        write_ascii(text[at++]);
      } else {
        write_multibyte(text, at);
      }
    }
    out_ += '"';
  }

  std::string take() { return std::move(out_); }

 private:
  void write_object(const nlohmann::ordered_json& object) {
    using Member = std::pair<const std::string*, const nlohmann::ordered_json*>;
    std::vector<Member> members;
    for (auto it = object.begin(); it != object.end(); ++it) members.emplace_back(&it.key(), &*it);
    if (options_.sort_keys) {  // the order of UTF-8 bytes is that of code points
      const bool numbers = std::all_of(members.begin(), members.end(), [](const Member& member) {
        return !member.first->empty() &&
               member.first->find_first_not_of("0123456789") == std::string::npos;
      });
      std::stable_sort(members.begin(), members.end(), [&](const Member& a, const Member& b) {
        if (numbers && a.first->size() != b.first->size()) return a.first->size() < b.first->size();
        return *a.first < *b.first;
      });
    }
    write_items('{', '}', members.size(), [&](std::size_t i) {
      write_string(*members[i].first);
      out_ += ": ";
      write(*members[i].second);
    });
  }

  void write_array(const nlohmann::ordered_json& array) {
    write_items('[', ']', array.size(), [&](std::size_t i) { write(array[i]); });
  }

  template <class WriteItem>
  void write_items(char open, char close, std::size_t count, WriteItem write_item) {
    out_ += open;
    ++level_;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += options_.indent < 0 ? ", " : ",";
      new_line();
      write_item(i);
    }
    --level_;
    if (count > 0) new_line();
    out_ += close;
  }

  void new_line() {
    if (options_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(options_.indent) * level_, ' ');
  }

  void write_float(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value < 0 ? "-Infinity" : "Infinity";
    } else {
      out_ += python_repr(value);
    }
  }

  void write_ascii(char c) {
    switch (c) {
      case '"':
        out_ += "\\\"";
        return;
      case '\\':
        out_ += "\\\\";
        return;
      case '\n':
        out_ += "\\n";
        return;
      case '\r':
        out_ += "\\r";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\f':
        out_ += "\\f";
        return;
      case '\b':
        out_ += "\\b";
        return;
      default:
        break;
    }
    if (c < 0x20 || (c == 0x7f && options_.ensure_ascii)) {
      write_unit(static_cast<std::uint32_t>(c));
    } else {
      out_ += c;
    }
  }

  void write_multibyte(std::string_view text, std::size_t& at) {
    const std::size_t start = at;
    const char32_t code_point = decode(text, at);
    if (!options_.ensure_ascii) {
      out_ += text.substr(start, at - start);
    } else if (code_point < 0x10000) {
      write_unit(code_point);
    } else {
      write_unit(0xd800 + ((code_point - 0x10000) >> 10));
      write_unit(0xdc00 + ((code_point - 0x10000) & 0x3ff));
    }
  }

  void write_unit(std::uint32_t unit) { out_ += fmt::format("\\u{:04x}", unit); }

  // Decodes the multi-byte sequence at text[at]; strict only as far as needed to stay inside of the
  // text.
  static char32_t decode(std::string_view text, std::size_t& at) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) invalid(at);
    char32_t code_point = lead & (0xffu >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xc0) != 0x80) invalid(at);
      code_point = code_point << 6 | (next & 0x3f);
    }
    at += length;
    return code_point;
  }

  [[noreturn]] static void invalid(std::size_t at) {
    raise<InvalidArgument>("a string to be written as JSON is not UTF-8 at byte {}", at);
  }

  const PythonJsonOptions options_;
  std::string out_;
  std::size_t level_ = 0;
};

// Numbers that JSON has no word for.
struct NonFinite {
  std::string_view word;
  double value;
};
constexpr NonFinite kNonFinite[] = {{"NaN", std::numeric_limits<double>::quiet_NaN()},
                                    {"-Infinity", -std::numeric_limits<double>::infinity()},
                                    {"Infinity", std::numeric_limits<double>::infinity()}};
// Such a number as a string that no file has.
constexpr std::string_view kMark = "\\u0000number:";
const std::string kReadMark = std::string(1, '\0') + "number:";

// `text` with each word of kNonFinite outside of strings as a marked string.
std::string marked(std::string_view text) {
  std::string result;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const auto* const found =
        std::find_if(std::begin(kNonFinite), std::end(kNonFinite), [&](const NonFinite& number) {
          return !in_string && text.substr(i, number.word.size()) == number.word;
        });
    if (found != std::end(kNonFinite)) {
      result += fmt::format("\"{}{}\"", kMark, found->word);
      i += found->word.size();
      continue;
    }
    const bool escape = in_string && text[i] == '\\' && i + 1 < text.size();
    if (text[i] == '"') in_string = !in_string;
    result.append(text, i, escape ? 2 : 1);
    i += escape ? 2 : 1;
  }
  return result;
}

// Replaces marked strings by their numbers.
void read_marks(nlohmann::ordered_json& value) {
  if (value.is_structured()) {
    for (const auto& element : value.items()) {
      if (value.is_object() && element.key().starts_with(kReadMark)) {
        throw nlohmann::ordered_json::parse_error::create(
            101, 0, fmt::format("{} is not a name", element.key().substr(kReadMark.size())),
            nullptr);
      }
      read_marks(element.value());
    }
    return;
  }
  if (!value.is_string()) return;
  const auto& text = value.get_ref<const std::string&>();
  if (!text.starts_with(kReadMark)) return;
  const std::string word = text.substr(kReadMark.size());
  for (const NonFinite& number : kNonFinite) {
    if (number.word != word) continue;
    value = number.value;
    return;
  }
}

}  // namespace

nlohmann::ordered_json parse_python_json(std::string_view text) {
  const bool plain = std::none_of(
      std::begin(kNonFinite), std::end(kNonFinite),
      [&](const NonFinite& number) { return text.find(number.word) != std::string_view::npos; });
  if (plain) return parse_ordered_json(text);
  nlohmann::ordered_json value = parse_ordered_json(marked(text));
  read_marks(value);
  return value;
}

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  const std::string_view sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return fmt::format("{}inf", sign);
  const Decimal decimal = shortest_decimal(value);
  const std::string_view digits = decimal.digits;
  const int exponent = decimal.exponent;
  if (exponent < -4 || exponent >= 16) {  // d.ddde±xx
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits.substr(0, 1), digits.size() > 1 ? "." : "",
                       digits.substr(1), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("{}0.{:0>{}}{}", sign, "", -exponent - 1, digits);
  const auto whole = static_cast<std::size_t>(exponent) + 1;  // digits before the point
  if (digits.size() <= whole) return fmt::format("{}{:0<{}}.0", sign, digits, whole);
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), digits.substr(whole));
}

std::string python_json(const nlohmann::ordered_json& value, const PythonJsonOptions& options) {
  Writer writer(options);
  writer.write(value);
  return writer.take();
}

std::string python_json_string(std::string_view text, bool ensure_ascii) {
  Writer writer({.ensure_ascii = ensure_ascii});
  writer.write_string(text);
  return writer.take();
}

std::string_view json_reason(std::string_view what) {
  constexpr std::string_view kPrefix = "[json.exception.";
  const std::size_t end = what.find("] ");
  return what.starts_with(kPrefix) && end != std::string_view::npos ? what.substr(end + 2) : what;
}

}  // namespace tandem
