#include "tandem/job/closing_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "tandem/core/shell_word.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;
  fs::file_time_type time;
};

// Files and checkpoints directly in the directory.
std::vector<Entry> entries_of(const fs::path& directory) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    const std::string name = it->path().filename().native();
    const auto time = it->last_write_time(unknown);
    const bool folder = it->is_directory(unknown);
    if (unknown || name.starts_with('.') || (folder && !name.starts_with("checkpoint-"))) continue;
    entries.push_back({folder ? name + "/" : name, time});
  }
  return entries;
}

// The entries that this job wrote. A file server's clock may differ from this host's: if
// report.json, which was just written, appears older than the job, all entries count.
std::vector<std::string> written_since(std::chrono::system_clock::time_point started,
                                       const fs::path& directory) {
  const auto begin = fs::file_time_type::clock::from_sys(started) - std::chrono::seconds(1);
  const std::vector<Entry> entries = entries_of(directory);
  const bool clocks_agree = std::any_of(entries.begin(), entries.end(), [&](const Entry& one) {
    return one.name == "report.json" && one.time >= begin;
  });
  std::vector<std::string> names;
  for (const Entry& entry : entries) {
    if (!clocks_agree || entry.time >= begin) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string try_command(const tasks::TryCommand& command, const std::string& program,
                        const std::string& model) {
  std::string text;
  if (!command.input.empty()) text = fmt::format("echo {} | ", shell_word(command.input));
  text += fmt::format("{} {} --model {}", program, command.subcommand, model);
  for (const std::string& word : command.words) text += " " + shell_word(word);
  return text;
}

}  // namespace

static void print_commands(const TrainingRun& run, const fs::path& directory) {
  const Arguments& arguments = run.request.arguments;
  const auto command = run.task.try_command();
  if (!command || run.request.program.empty()) return;
  Console& console = run.observers.console;
  const std::string program = shell_word(run.request.program);
  const std::string word = shell_word(directory.native());
  if (arguments.trains() || arguments.quantization.apply_quantization) {
    console.command("try it", try_command(*command, program, word));
    console.command("serve it", fmt::format("{} serve --model {}", program, word));
  }
  console.command("report", fmt::format("{} report {}", program, word));
}

void print_closing_report(const TrainingRun& run) {
  Console& console = run.observers.console;
  const std::string& output_dir = run.request.arguments.training.output_dir;
  std::error_code error;
  fs::path directory = fs::absolute(output_dir, error);
  if (error) directory = output_dir;
  console.fact("written", fmt::format("to {}: {}", directory.native(),
                                      fmt::join(written_since(run.started, directory), ", ")));
  print_commands(run, directory);
  const std::string asked = run.request.asked_output_dir.value_or(output_dir);
  if (asked == output_dir) return;
  console.fact("note",
               fmt::format("--output_dir: the job continued in '{}', where it began, not in "
                           "'{}'",
                           directory.native(), asked));
}

}  // namespace tandem::job
