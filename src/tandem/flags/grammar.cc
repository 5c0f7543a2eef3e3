#include "tandem/flags/grammar.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "tandem/core/ascii.h"
#include "tandem/core/file.h"
#include "tandem/core/python_json.h"
#include "tandem/flags/suggest.h"

namespace tandem::flags {
namespace {

[[noreturn]] void bad_argument(const Flag& flag, std::string_view problem) {
  throw ConfigError(fmt::format("argument --{}: {}", flag.name, problem), /*usage=*/true);
}

// Every way to spell a flag, for lookups by name and by prefix.
struct Spelling {
  std::string name;  // with underscores
  const Flag* flag;
  bool negated;

  bool same_meaning(const Spelling& other) const {
    return flag == other.flag && negated == other.negated;
  }
};

std::vector<Spelling> spellings_of(const FlagTable& table) {
  std::vector<Spelling> spellings;
  for (const Flag& flag : table) {
    spellings.push_back({std::string(flag.name), &flag, false});
    for (const Alias& alias : flag.aliases)
      spellings.push_back({std::string(alias.name), &flag, false});
    if (flag.negatable) spellings.push_back({fmt::format("no_{}", flag.name), &flag, true});
  }
  return spellings;
}

// The flag under the name that was written: messages about its value use that one. Valid as long as
// the spelling.
Flag as_spelled(const Spelling& spelling) {
  Flag flag = *spelling.flag;
  flag.name = spelling.name;
  return flag;
}

// The spelling itself, or the only meaning that begins with `name`. Throws for an ambiguous prefix.
const Spelling* find_spelling(const std::vector<Spelling>& spellings, std::string_view name) {
  std::vector<const Spelling*> candidates;
  for (const Spelling& spelling : spellings) {
    if (spelling.name == name) return &spelling;
    if (spelling.name.starts_with(name)) candidates.push_back(&spelling);
  }
  if (candidates.empty()) return nullptr;
  const bool unique = std::all_of(candidates.begin(), candidates.end(), [&](const Spelling* other) {
    return other->same_meaning(*candidates.front());
  });
  if (unique) return candidates.front();
  std::string list;
  for (const Spelling* candidate : candidates) list += fmt::format(" --{}", candidate->name);
  throw ConfigError(fmt::format("ambiguous flag: --{} could be{}", name, list), /*usage=*/true);
}

// A word that argparse takes for a flag: it starts with a dash and is neither a number nor a text
// with spaces.
bool looks_like_flag(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !parse_number(word) &&
         word.find(' ') == std::string_view::npos;
}

// "a, b or c", each with its dashes.
std::string alternatives(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}--{}", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

// Flags that may have been meant by `name`: those that it is a part of (batch_size of
// per_device_train_batch_size), or that which is spelled much alike.
std::vector<std::string> similar_flags(const FlagTable& table, const std::string& name) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> similar;
  for (const Flag& flag : table) {
    const bool part =
        fmt::format("_{}_", flag.name).find(fmt::format("_{}_", name)) != std::string::npos;
    if (part && flag.verdict == Verdict::kWorks) similar.emplace_back(flag.name);
  }
  if (!similar.empty() && similar.size() <= kShown) return similar;
  std::vector<std::string> names;
  for (const Spelling& spelling : spellings_of(table)) names.push_back(spelling.name);
  const auto suggestion = nearest(name, names);
  return suggestion ? std::vector{*suggestion} : std::vector<std::string>{};
}

// Message about the unknown flags that the user typed, with suggestions.
std::string unknown_flags_message(const FlagTable& table, const std::vector<std::string>& unknown) {
  std::string message = unknown.size() == 1 ? "unknown argument:" : "unknown arguments:";
  for (const std::string& word : unknown) {
    if (!word.starts_with("-")) {
      message += fmt::format("\n  '{}' follows no flag that takes it", word);
      continue;
    }
    std::string name = word.substr(word.find_first_not_of('-'));
    std::replace(name.begin(), name.end(), '-', '_');
    const std::vector<std::string> similar = similar_flags(table, name);
    message += similar.empty()
                   ? fmt::format("\n  {} (no similar flag)", word)
                   : fmt::format("\n  {} (did you mean {}?)", word, alternatives(similar));
  }
  return message;
}

// "true" → true, "12" → 12, "0.5" → 0.5 inside dictionaries, as transformers converts them.
Json converted_text(const std::string& text) {
  const std::string word = ascii_lower(text);
  if (word == "true" || word == "false") return word == "true";
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string::npos) return text;
  const Json number = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number : Json(text);
}

void convert_texts(Json& dictionary) {
  for (Json& value : dictionary) {
    if (value.is_object()) convert_texts(value);
    if (value.is_string()) value = converted_text(value.get<std::string>());
  }
}

Json parse_dictionary(const Flag& flag, std::string_view text) {
  if (text.empty()) return Json::object();
  // The reason why a flag is refused is more useful than an error in its file.
  if (flag.verdict == Verdict::kRefused) {
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    return value.is_object() ? value : Json(text);
  }
  const bool is_inline = text.starts_with("{");
  std::string content(text);
  if (!is_inline) {
    const auto file = read_file_if_exists(std::filesystem::path(text));
    if (!file) {
      bad_argument(flag,
                   fmt::format("'{}' is neither inline JSON starting with '{{' nor a file", text));
    }
    content = *file;
  }
  Json value = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    bad_argument(flag, fmt::format("{} is not a JSON object", is_inline ? "the value" : text));
  }
  convert_texts(value);
  return value;
}

std::string plain_number(double value) {
  return std::floor(value) == value && std::abs(value) < 1e15
             ? fmt::format("{}", static_cast<std::int64_t>(value))
             : fmt::format("{}", value);
}

void check_range(const Flag& flag, double value, std::string_view text) {
  const Binding& range = flag.binding;
  if (value >= range.min && value <= range.max) return;
  const bool unbounded = range.max >= 9e18;
  bad_argument(flag, unbounded ? fmt::format("{} is out of range, expected at least {}", text,
                                             plain_number(range.min))
                               : fmt::format("{} is out of range, expected {} to {}", text,
                                             plain_number(range.min), plain_number(range.max)));
}

Json parse_integer_value(const Flag& flag, std::string_view text) {
  std::string digits(text.starts_with("+") ? text.substr(1) : text);
  if (parse_number(text))
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    bad_argument(flag, fmt::format("invalid integer: '{}'", text));
  }
  check_range(flag, static_cast<double>(value), text);
  return value;
}

Json parse_number_value(const Flag& flag, std::string_view text) {
  const auto value = parse_number(text);
  if (!value) bad_argument(flag, fmt::format("invalid number: '{}'", text));
  check_range(flag, *value, text);
  return *value;
}

Json parse_bool_value(const Flag& flag, std::string_view text) {
  const auto value = parse_bool(text);
  if (!value) {
    bad_argument(
        flag, fmt::format("truth value expected: got '{}' but expected one of yes/no, true/false, "
                          "t/f, y/n, 1/0 (in any case)",
                          text));
  }
  return *value;
}

Json parse_choice_value(const Flag& flag, std::string_view text) {
  std::vector<std::string> values;
  for (const Choice& choice : flag.choices) {
    if (choice.value == text) return choice.value;
    values.push_back(choice.value);
  }
  if (const auto truth = parse_bool(text); truth && !flag.when_true.empty())
    return *truth ? flag.when_true : flag.when_false;
  const auto suggestion = nearest(text, values);
  bad_argument(flag, fmt::format("invalid choice: '{}'{} (choose from {})", text,
                                 suggestion ? fmt::format(", did you mean '{}'?", *suggestion) : "",
                                 fmt::join(values, ", ")));
}

std::string value_name(const Flag& flag) {
  switch (flag.kind()) {
    case Kind::kBool:
      return "a value: true or false";
    case Kind::kList:
      return "at least one value";
    default:
      return "a value";
  }
}

// The values of one flag on the command line: how many the kind takes decides how far the reader
// goes.
Json value_from_words(const Flag& flag, std::span<const std::string> words) {
  if (words.empty()) {
    if (!flag.bare) bad_argument(flag, fmt::format("expected {}", value_name(flag)));
    return parse_value(flag, "true");
  }
  if (flag.kind() != Kind::kList) return parse_value(flag, words.front());
  Json list = Json::array();
  for (const std::string& word : words) list.push_back(word);
  return list;
}

Json value_from_json(const Flag& flag, const Json& value) {
  if (value.is_string()) {
    const Json parsed = parse_value(flag, value.get_ref<const std::string&>());
    return flag.kind() == Kind::kList ? Json::array({value}) : parsed;
  }
  switch (flag.kind()) {
    case Kind::kBool:
      if (value.is_boolean()) return value;
      break;
    case Kind::kInteger:
    case Kind::kNumber:
      if (value.is_number()) return parse_value(flag, value.dump());
      break;
    case Kind::kString:
      if (value.is_boolean() || value.is_number()) return value.dump();
      break;
    case Kind::kList: {
      const auto is_text = [](const Json& item) { return item.is_string(); };
      if (value.is_array() && std::all_of(value.begin(), value.end(), is_text)) return value;
      break;
    }
    case Kind::kDict:
      if (value.is_object()) {
        Json dictionary = value;
        convert_texts(dictionary);
        return dictionary;
      }
      break;
    case Kind::kChoice:
      if (value.is_boolean()) return parse_choice_value(flag, value.get<bool>() ? "true" : "false");
      break;
  }
  // A flag without a field is treated alike for every value.
  if (flag.verdict != Verdict::kWorks && flag.binding.set == nullptr) return value;
  bad_argument(flag, fmt::format("a value of the wrong type: {}", value.dump()));
}

// Appends, replacing an earlier occurrence: the last one wins.
void add_given(std::vector<Given>& all, Given given) {
  std::erase_if(all, [&](const Given& earlier) { return earlier.flag == given.flag; });
  all.push_back(std::move(given));
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = ascii_lower(text);
  if (word == "yes" || word == "true" || word == "t" || word == "y" || word == "1") return true;
  if (word == "no" || word == "false" || word == "f" || word == "n" || word == "0") return false;
  return std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_digit = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (text[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    if (text[i] == '+' && i == 0) continue;
    plain += text[i];
  }
  double value = 0;
  const char* const end = plain.data() + plain.size();
  const auto result = std::from_chars(plain.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || std::isnan(value)) return std::nullopt;
  return value;
}

Json parse_value(const Flag& flag, std::string_view text) {
  switch (flag.kind()) {
    case Kind::kBool:
      return parse_bool_value(flag, text);
    case Kind::kInteger:
      return parse_integer_value(flag, text);
    case Kind::kNumber:
      return parse_number_value(flag, text);
    case Kind::kChoice:
      return parse_choice_value(flag, text);
    case Kind::kDict:
      return parse_dictionary(flag, text);
    case Kind::kString:
    case Kind::kList:
      return std::string(text);
  }
  TANDEM_CHECK(false, "unknown kind");
  return {};
}

std::vector<Given> parse_command_line(const FlagTable& table,
                                      std::span<const std::string> arguments) {
  const std::vector<Spelling> spellings = spellings_of(table);
  std::vector<Given> all;
  std::vector<std::string> unknown;
  for (std::size_t i = 0; i < arguments.size();) {
    const std::string& word = arguments[i++];
    if (!looks_like_flag(word)) {
      unknown.push_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    const bool has_inline_value = equals != std::string::npos;
    // The words behind the flag, up to the next flag; a flag takes one of them, a list all.
    std::size_t end = i;
    while (end < arguments.size() && !looks_like_flag(arguments[end])) ++end;
    std::string name = word.substr(0, equals);
    name.erase(0, name.starts_with("--") ? 2 : 1);
    std::replace(name.begin(), name.end(), '-', '_');
    const Spelling* spelling =
        word.starts_with("--") && !name.empty() ? find_spelling(spellings, name) : nullptr;
    if (spelling == nullptr) {
      unknown.push_back(word.substr(0, equals));
      i = end;
      continue;
    }
    const Flag flag = as_spelled(*spelling);
    Given given{spelling->flag, spelling->name, Json(false)};
    if (spelling->negated) {
      if (has_inline_value) bad_argument(flag, "takes no value");
      given.spelled = spelling->flag->name;
    } else if (has_inline_value) {
      given.value = value_from_words(flag, std::vector<std::string>{word.substr(equals + 1)});
    } else {
      const std::size_t most =
          flag.kind() == Kind::kList ? end - i : std::min<std::size_t>(1, end - i);
      given.value = value_from_words(flag, arguments.subspan(i, most));
      i += most;
    }
    add_given(all, std::move(given));
  }
  if (!unknown.empty()) throw ConfigError(unknown_flags_message(table, unknown), /*usage=*/true);
  return all;
}

std::vector<Given> parse_json_flags(const FlagTable& table, std::string_view text,
                                    std::string_view origin) {
  Json values;
  try {
    values = Json::parse(text);
  } catch (const Json::exception& error) {  // errors of syntax, and numbers that no double holds
    raise<ConfigError>("{}: not valid JSON: {}", origin, json_reason(error.what()));
  }
  if (!values.is_object()) {
    raise<ConfigError>("{}: expected a JSON object {{\"flag\": value, …}}, found {}", origin,
                       values.type_name());
  }
  const std::vector<Spelling> spellings = spellings_of(table);
  std::vector<Given> all;
  std::vector<std::string> unknown;
  for (const auto& [key, value] : values.items()) {
    const std::string name = key;
    const auto found = std::find_if(
        spellings.begin(), spellings.end(),
        [&](const Spelling& spelling) { return !spelling.negated && spelling.name == name; });
    if (found == spellings.end()) {
      unknown.push_back("--" + name);
    } else if (!value.is_null()) {
      add_given(all, {found->flag, found->name, value_from_json(as_spelled(*found), value)});
    }
  }
  if (!unknown.empty()) {
    throw ConfigError(fmt::format("{}: {}", origin, unknown_flags_message(table, unknown)),
                      /*usage=*/true);
  }
  return all;
}

}  // namespace tandem::flags
