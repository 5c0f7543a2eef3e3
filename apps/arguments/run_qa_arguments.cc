#include "apps/arguments/run_qa_arguments.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "apps/arguments/accelerator_config.h"
#include "apps/arguments/complete_arguments.h"
#include "apps/arguments/grammar.h"
#include "tandem/core/file.h"

namespace tandem::apps {
namespace {

std::string expand_home(const std::string& path, const Environment& environment) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const auto home = environment.get("HOME");
  if (!home) raise<ConfigError>("{}: ~ cannot be expanded because HOME is not set", path);
  return *home + path.substr(1);
}

// A value that asks for nothing, whatever the default: false, an empty text, and lists and
// dictionaries of nothing else, such as the fsdp_config that transformers saves for every run.
bool asks_for_nothing(const Json& value) {
  if (value.is_structured()) {
    return std::all_of(value.begin(), value.end(),
                       [](const Json& item) { return item == Json(0) || asks_for_nothing(item); });
  }
  return value.is_null() || value == Json(false) || value == Json("");
}

std::string shown(const Given& given) {
  if (given.flag->secret) return "";
  return fmt::format(" {}",
                     given.value.is_string() ? given.value.get<std::string>() : given.value.dump());
}

// Applies rows to the structs, and collects what has to be said about them.
class Applier {
 public:
  Applier(const ArgumentParts& parts, const Environment& environment)
      : parts_(parts), environment_(environment) {}

  void apply(const Given& given) {
    const Flag& flag = *given.flag;
    for (const Alias& alias : flag.aliases) {
      if (alias.name == given.spelled && !alias.note.empty()) {
        notes_.push_back(fmt::format("--{} {}", alias.name, alias.note));
      }
    }
    Json value = given.value;
    if (flag.kind() == Kind::kChoice) {
      const Choice& choice = *std::find_if(
          flag.choices.begin(), flag.choices.end(),
          [&](const Choice& c) { return c.value == value.get_ref<const std::string&>(); });
      rule(given, choice.verdict, choice.reason);
      if (choice.verdict != Verdict::kWorks) return;
      value = choice.canonical;
    }
    const bool asks_for_something =
        value != flag.initial && (flag.initial == Json(true) || !asks_for_nothing(value));
    if (flag.verdict == Verdict::kNote || asks_for_something)
      rule(given, flag.verdict, flag.reason);
    if (flag.is_path && value.is_string())
      value = expand_home(value.get<std::string>(), environment_);
    if (flag.binding.set != nullptr) flag.binding.set(parts_, value);
  }

  std::vector<std::string>& notes() { return notes_; }

  void throw_refusals() const {
    if (refusals_.empty()) return;
    throw ConfigError(refusals_.size() == 1
                          ? refusals_.front()
                          : fmt::format("{} flags cannot be used:\n  {}", refusals_.size(),
                                        fmt::join(refusals_, "\n  ")));
  }

 private:
  void rule(const Given& given, Verdict verdict, std::string_view reason) {
    switch (verdict) {
      case Verdict::kWorks:
        break;
      case Verdict::kNote:
        notes_.push_back(fmt::format("--{} has no effect: {}", given.spelled, reason));
        break;
      case Verdict::kRefused:
        refusals_.push_back(
            fmt::format("--{}{} is not supported: {}", given.spelled, shown(given), reason));
        break;
    }
  }

  ArgumentParts parts_;
  const Environment& environment_;
  std::vector<std::string> notes_;
  std::vector<std::string> refusals_;
};

void check_required(const FlagTable& table, const std::vector<Given>& given) {
  std::string missing;
  for (const Flag& flag : table) {
    const bool found = std::any_of(given.begin(), given.end(), [&](const Given& one) {
      return one.flag == &flag && !asks_for_nothing(one.value);
    });
    if (flag.required && !found) missing += fmt::format(" --{}", flag.name);
  }
  if (!missing.empty())
    throw ConfigError(fmt::format("required and not given:{}", missing), /*usage=*/true);
}

// The words of a .args file: split at white space, as the original does.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<Given> read_flags(const FlagTable& table, std::span<const std::string> words,
                              const std::filesystem::path& directory,
                              std::vector<std::string>& notes) {
  if (words.size() == 1 && words.front().ends_with(".json")) {
    return parse_json_flags(table, read_file(directory / words.front()), words.front());
  }
  std::vector<std::string> all;
  if (const auto text = read_file_if_exists(directory / "run_qa.args")) {
    all = words_of(*text);
    notes.push_back(fmt::format("the flags of {} come before those of the command line",
                                (directory / "run_qa.args").string()));
  }
  all.insert(all.end(), words.begin(), words.end());
  return parse_command_line(table, all);
}

}  // namespace

ParsedRunQa parse_run_qa(std::span<const std::string> words, const std::filesystem::path& directory,
                         const Environment& environment) {
  const FlagTable table = run_qa_flags();
  ParsedRunQa parsed;
  const std::vector<Given> given = read_flags(table, words, directory, parsed.notes);
  check_required(table, given);
  Applier applier(parsed.arguments.parts(), environment);
  for (const Given& one : given) {
    applier.apply(one);
    parsed.given.emplace(one.flag->name);
  }
  applier.throw_refusals();
  parsed.notes.insert(parsed.notes.end(), applier.notes().begin(), applier.notes().end());
  for (const Given& one : given) {
    if (one.flag->name == "accelerator_config")
      apply_accelerator_config(one.value, parsed.arguments.training, parsed.notes);
  }
  complete_arguments(parsed.arguments, parsed.notes);
  return parsed;
}

Json to_json(const RunQaArguments& arguments) {
  RunQaArguments copy = arguments;
  Json result = Json::object();
  for (const Flag& flag : run_qa_flags()) {
    if (flag.binding.get == nullptr) continue;
    Json value = flag.binding.get(copy.parts());
    if (flag.secret && !value.is_null()) value = "<TOKEN>";
    result[std::string(flag.name)] = std::move(value);
  }
  return result;
}

std::string describe(const RunQaArguments& arguments) {
  const Json values = to_json(arguments);
  std::string text;
  for (const auto& [name, value] : values.items()) {
    text += fmt::format("{}={}\n", name, value.is_null() ? "None" : value.dump());
  }
  return text;
}

std::string training_args_json(const RunQaArguments& arguments) {
  return to_json(arguments).dump(2) + "\n";
}

}  // namespace tandem::apps
