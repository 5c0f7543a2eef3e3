#include "apps/arguments/job_command_line.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "apps/arguments/accelerator_config.h"
#include "apps/arguments/complete_arguments.h"
#include "tandem/core/file.h"
#include "tandem/core/shell_word.h"
#include "tandem/flags/grammar.h"

namespace tandem::apps {
namespace {

using flags::Given;
using flags::parse_command_line;
using flags::parse_json_flags;

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

// Applies rows to the structs, and collects notes about them.
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
                              const std::filesystem::path& args_file,
                              std::vector<std::string>& notes) {
  if (words.size() == 1 && words.front().ends_with(".json")) {
    return parse_json_flags(table, read_file(args_file.parent_path() / words.front()),
                            words.front());
  }
  std::vector<std::string> all;
  if (const auto text = read_file_if_exists(args_file)) {
    all = words_of(*text);
    notes.push_back(
        fmt::format("the flags of {} come before those of the command line", args_file.string()));
  }
  all.insert(all.end(), words.begin(), words.end());
  return parse_command_line(table, all);
}

// Whether a word names a flag whose value must not be shown. Flags may be cut short, so every
// beginning counts.
bool is_secret(std::string_view word, const FlagTable& flags) {
  if (!word.starts_with("--")) return false;
  std::string name(word.substr(2, word.find('=') - 2));
  std::replace(name.begin(), name.end(), '-', '_');
  return std::any_of(flags.begin(), flags.end(), [&](const Flag& flag) {
    return flag.secret && !name.empty() && flag.name.starts_with(name);
  });
}

ArgumentParts parts_of(job::Arguments& arguments, tasks::TaskArguments& task) {
  ArgumentParts parts(arguments.model, arguments.training, arguments.quantization, arguments.lora);
  task.add_to(parts);
  return parts;
}

}  // namespace

FlagTable command_flags(const tasks::TaskArguments& task) {
  const FlagTable own = task.flags();
  const auto is_own = [&](const Flag& flag) {
    return std::any_of(own.begin(), own.end(),
                       [&](const Flag& other) { return other.name == flag.name; });
  };
  FlagTable table;
  const auto add_shared = [&](const FlagTable& part) {
    std::copy_if(part.begin(), part.end(), std::back_inserter(table),
                 [&](const Flag& flag) { return !is_own(flag); });
  };
  add_shared(model_flags());
  table.insert(table.end(), own.begin(), own.end());
  add_shared(training_flags());
  add_shared(quantization_flags());
  add_shared(lora_flags());
  return table;
}

CommandLineRemarks parse_job(std::span<const std::string> words,
                             const std::filesystem::path& directory, const Environment& environment,
                             tasks::TaskArguments& task, job::Arguments& arguments) {
  const FlagTable table = command_flags(task);
  CommandLineRemarks remarks;
  const std::vector<Given> given =
      read_flags(table, words, directory / fmt::format("{}.args", task.command()), remarks.notes);
  check_required(table, given);
  Applier applier(parts_of(arguments, task), environment);
  for (const Given& one : given) {
    applier.apply(one);
    remarks.given.emplace(one.flag->name);
  }
  applier.throw_refusals();
  remarks.notes.insert(remarks.notes.end(), applier.notes().begin(), applier.notes().end());
  for (const Given& one : given) {
    if (one.flag->name == "accelerator_config")
      apply_accelerator_config(one.value, arguments.training, remarks.notes);
  }
  complete_arguments(arguments, task, remarks.notes);
  return remarks;
}

job::Request parse_request(std::span<const std::string> words,
                           const std::filesystem::path& directory, const Environment& environment,
                           tasks::TaskArguments& task) {
  job::Request request;
  request.notes = parse_job(words, directory, environment, task, request.arguments).notes;
  request.command = shown_command(words, task);
  request.values = to_json(request.arguments, task);
  return request;
}

Json to_json(job::Arguments& arguments, tasks::TaskArguments& task) {
  const ArgumentParts parts = parts_of(arguments, task);
  Json result = Json::object();
  for (const Flag& flag : command_flags(task)) {
    if (flag.binding.get == nullptr) continue;
    Json value = flag.binding.get(parts);
    if (flag.secret && !value.is_null()) value = "<TOKEN>";
    result[std::string(flag.name)] = std::move(value);
  }
  return result;
}

std::string shown_command(std::span<const std::string> words, const tasks::TaskArguments& task) {
  const FlagTable table = command_flags(task);
  std::string text = fmt::format("tandem {}", task.command());
  bool value_of_secret = false;
  for (const std::string& word : words) {
    const bool secret = is_secret(word, table);
    const std::size_t equals = word.find('=');
    text += ' ';
    if (value_of_secret && !word.starts_with("--")) {
      text += "TOKEN";
    } else if (secret && equals != std::string::npos) {
      text += word.substr(0, equals) + "=TOKEN";
    } else {
      text += shell_word(word);
    }
    value_of_secret = secret && equals == std::string::npos;
  }
  return text;
}

}  // namespace tandem::apps
