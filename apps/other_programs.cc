#include "apps/other_programs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "apps/command/commands.h"
#include "apps/command/own_path.h"
#include "apps/doctor/program.h"
#include "tandem/core/error.h"
#include "tandem/launch/run/program.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;

// Python may start slowly from a shared file system.
constexpr std::chrono::milliseconds kPythonTimeout{60000};
// Prints the interpreter's path if it has torch. The path is that of the program itself, not of a
// script in PATH that calls it.
constexpr const char* kFindTorch =
    "import importlib.util, sys\n"
    "if importlib.util.find_spec('torch'): print(sys.executable)\n";

std::string search_path(const Environment& environment) {
  return environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
}

// tandem under another name, or a script that calls `tandem mpirun` as that of the image does.
bool is_tandem(const fs::path& path, const std::string& self) {
  std::error_code error;
  if (fs::equivalent(path, self, error)) return true;
  std::string begin(4096, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), std::ssize(begin));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  return begin.starts_with("#!") && begin.find("tandem mpirun") != std::string::npos;
}

}  // namespace

std::vector<std::string> job_command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (is_job(command)) names.emplace_back(command.name);
  }
  return names;
}

std::vector<std::string> torchrun_command(const std::vector<std::string>& words,
                                          const Environment& environment) {
  const std::string name = environment.get("PYTHON_EXEC").value_or("python3");
  const std::string python = launch::find_executable(name, search_path(environment));
  const std::string jobs = fmt::format("{}", fmt::join(job_command_names(), ", "));
  if (python.empty())
    raise<ConfigError>(
        "cannot start a program that is not a job of tandem ({}): found no program '{}'{}, "
        "expected a Python with torch, whose torchrun starts it; install one, or name one in "
        "PYTHON_EXEC",
        jobs, name, name.find('/') == std::string::npos ? " in PATH" : "");
  const auto output = doctor::run_program({python, "-c", kFindTorch}, kPythonTimeout);
  const std::string executable = doctor::first_line(output.out);
  if (output.exit_code != 0 || executable.empty())
    raise<ConfigError>(
        "cannot start a program that is not a job of tandem ({}): found no torch in {}{}, expected "
        "it because its torchrun starts the program; install it with `{} -m pip install torch`, or "
        "name another Python in PYTHON_EXEC",
        jobs, python,
        output.err.empty() ? "" : fmt::format(" ({})", doctor::first_line(output.err)), python);
  std::vector<std::string> command = {executable, "-m", "torch.distributed.run"};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::string find_mpiexec(const Environment& environment, const std::string& self) {
  const std::string path = search_path(environment);
  for (const char* const name : {"mpiexec.hydra", "mpirun.mpich", "mpirun", "mpiexec"}) {
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find(':', begin), path.size());
      const std::string found = launch::find_executable(name, path.substr(begin, end - begin));
      if (begin < end && !found.empty() && !is_tandem(found, self)) return found;
      begin = end + 1;
    }
  }
  return "";
}

bool starts_tandem(const std::vector<std::string>& command) {
  const std::vector<std::string> jobs = job_command_names();
  const fs::path own = fs::path(own_path()).filename();  // it may have another name
  constexpr std::string_view kSeparators = " \t\n;&|()'\"`";
  for (const std::string& text : command) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
      const fs::path word(text.substr(begin, end - begin));
      const bool is_script = word.extension() == ".py" && launch::names_job(word.native(), jobs);
      if (word.filename() == "tandem" || word.filename() == own || is_script) return true;
      begin = end + 1;
    }
  }
  return false;
}

void execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  throw io_error("cannot execute", command.front(), errno);
}

}  // namespace tandem::apps
