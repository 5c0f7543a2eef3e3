#include "tandem/launch/program.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

bool is_job(const ProgramPaths& paths, std::string_view name) {
  return std::find(paths.job_commands.begin(), paths.job_commands.end(), name) !=
         paths.job_commands.end();
}

// The job command that the script stands for, or empty.
std::string job_command(const RunOptions& options, const ProgramPaths& paths) {
  if (options.module) return "";
  const fs::path script(options.script);
  if (options.no_python) {
    const bool names_job = script.filename() == "tandem" && !options.script_arguments.empty() &&
                           is_job(paths, options.script_arguments.front());
    return names_job ? options.script_arguments.front() : "";
  }
  const std::string stem = script.stem().string();
  if (!is_job(paths, stem)) return "";
  if (script.extension() == ".py") return stem;
  return script.extension().empty() && !fs::exists(script) ? stem : "";
}

WorkerProgram own_program(const RunOptions& options, const ProgramPaths& paths,
                          const std::string& command) {
  WorkerProgram program{{paths.self}, true};
  if (!options.no_python) program.command.push_back(command);
  program.command.insert(program.command.end(), options.script_arguments.begin(),
                         options.script_arguments.end());
  return program;
}

std::string find_python(const ProgramPaths& paths) {
  std::string path = find_executable(paths.python, paths.search_path);
  if (path.empty()) {
    raise<ConfigError>(
        "the script needs Python, and there is no program '{}' in PATH; install python3, set "
        "PYTHON_EXEC, or use --no-python for a script that is a program",
        paths.python);
  }
  return path;
}

std::string find_program(const std::string& name, const ProgramPaths& paths) {
  std::string path = find_executable(name, paths.search_path);
  if (path.empty()) {
    raise<ConfigError>(
        "there is no program '{}'{}", name,
        name.find('/') == std::string::npos ? " in PATH" : ", or it is not executable");
  }
  return path;
}

// Returns true if Linux can execute the file itself: Python would read such a file as text and fail
// with a SyntaxError.
bool is_binary(const fs::path& path) {
  std::string begin(4, '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
  return begin == "\177ELF";
}

// For a script that Python is to read.
void check_script(const std::string& script, const ProgramPaths& paths) {
  if (!fs::exists(script))
    raise<ConfigError>("there is no script '{}'; tandem's own jobs are {}", script,
                       fmt::join(paths.job_commands, ", "));
  if (is_binary(script))
    raise<ConfigError>(
        "'{}' is a program, not a Python script: put --no-python before it, or for tandem's own "
        "jobs name one of {} instead of it",
        script, fmt::join(paths.job_commands, ", "));
}

// sys.argv and the name "__main__" as in torchrun's own run_path.
constexpr std::string_view kRunPath =
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], "
    "run_name='__main__')";

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

std::string find_executable(const std::string& name, const std::string& search_path) {
  if (name.find('/') != std::string::npos) return is_executable(name) ? name : "";
  for (std::size_t begin = 0; begin <= search_path.size();) {
    const std::size_t end = std::min(search_path.find(':', begin), search_path.size());
    const fs::path folder = search_path.substr(begin, end - begin);
    const fs::path path = (folder.empty() ? fs::path(".") : folder) / name;
    if (is_executable(path)) return path.string();
    begin = end + 1;
  }
  return "";
}

WorkerProgram worker_program(const RunOptions& options, const ProgramPaths& paths) {
  const std::string job = job_command(options, paths);
  if (!job.empty()) return own_program(options, paths, job);
  WorkerProgram program;
  auto& command = program.command;
  if (options.run_path) {
    command = {find_python(paths), "-u", "-c", std::string(kRunPath)};
  } else if (options.no_python) {
    command = {find_program(options.script, paths)};
  } else {
    command = {find_python(paths), "-u"};
    if (options.module) command.emplace_back("-m");
  }
  if (!options.no_python || options.run_path) {
    if (!options.module) check_script(options.script, paths);
    command.push_back(options.script);
  }
  command.insert(command.end(), options.script_arguments.begin(), options.script_arguments.end());
  return program;
}

std::string substitute(std::string_view text,
                       const std::map<std::string, std::string, std::less<>>& values) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '$') {
      result += text[at++];
      continue;
    }
    if (text.substr(at, 2) == "$$") {
      result += '$';
      at += 2;
      continue;
    }
    const bool braces = text.substr(at, 2) == "${";
    const std::size_t begin = at + (braces ? 2 : 1);
    std::size_t end = begin;
    while (end < text.size() && is_name(text[end])) ++end;
    const auto found = values.find(text.substr(begin, end - begin));
    const bool closed = !braces || text.substr(end, 1) == "}";
    if (found == values.end() || !closed) {
      result += text[at++];
      continue;
    }
    result += found->second;
    at = end + (braces ? 1 : 0);
  }
  return result;
}

std::vector<std::string> command_of(const WorkerProgram& program, int local_rank) {
  std::vector<std::string> command = program.command;
  if (program.own_job) return command;
  for (auto word = command.begin() + 1; word != command.end(); ++word)
    *word = substitute(*word, {{"local_rank", std::to_string(local_rank)}});
  return command;
}

}  // namespace tandem::launch
