#include "support/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "support/sanitizers.h"

extern char** environ;

namespace tandem::testing {
namespace {

// Tests may themselves run under a launcher: its variables must not reach the ranks they start.
const std::vector<std::string> kLauncherPrefixes = {
    "RANK=",         "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=",
    "MASTER_",       "PMI_",        "PMIX_",       "OMPI_",
    "MPI_LOCAL",     "MV2_",        "SLURM_",      "OMP_NUM_THREADS=",
    "TORCHELASTIC_", "TANDEM_",     "HYDI_",       "HYDRA_",
    "PET_"};

std::vector<std::string> child_environment(const std::map<std::string, std::string>& additions) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const bool launcher =
        std::any_of(kLauncherPrefixes.begin(), kLauncherPrefixes.end(),
                    [&](const std::string& prefix) { return text.starts_with(prefix); });
    if (!launcher && !additions.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  if (!additions.contains("TANDEM_FLIGHT_RECORD")) {  // not among the user's temporary files
    const auto folder = std::filesystem::temp_directory_path() / "tandem-test-records";
    std::filesystem::create_directories(folder);
    result.push_back("TANDEM_FLIGHT_RECORD=" + folder.native());
  }
  for (const auto& [name, value] : additions) {
    if (!value.empty()) result.push_back(name + "=" + value);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Process::Process(const std::vector<std::string>& command,
                 const std::map<std::string, std::string>& environment)
    : start_(std::chrono::steady_clock::now()) {
  static std::atomic<int> counter{0};
  const auto base = std::filesystem::temp_directory_path() /
                    fmt::format("tandem-process-{}-{}", ::getpid(), counter++);
  out_ = base.native() + ".out";
  err_ = base.native() + ".err";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  // A suite under nohup ignores SIGHUP, which its children would inherit.
  sigset_t defaults;
  ::sigemptyset(&defaults);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) ::sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  std::vector<std::string> words = command;
  std::vector<std::string> variables = child_environment(environment);
  const int error = posix_spawnp(&pid_, words[0].c_str(), &actions, &attributes,
                                 pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    pid_ = -1;
    ADD_FAILURE() << "cannot start " << words[0] << ": " << std::strerror(error);
  }
}

Process::~Process() {
  if (pid_ > 0 && !reaped_) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
  }
  std::error_code ignored;
  std::filesystem::remove(out_, ignored);
  std::filesystem::remove(err_, ignored);
}

void Process::signal(int number) const { ::kill(pid_, number); }

bool Process::running() {
  if (reaped_ || pid_ <= 0) return false;
  if (::waitpid(pid_, &status_, WNOHANG) == pid_) reaped_ = true;
  return !reaped_;
}

ProcessResult Process::wait(std::chrono::seconds limit) {
  if (kSanitized) limit *= 10;
  while (running()) {
    if (std::chrono::steady_clock::now() - start_ > limit) {
      ADD_FAILURE() << "process " << pid_ << " still runs after " << limit.count()
                    << " s; its stderr:\n"
                    << err_so_far();
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, &status_, 0);
      reaped_ = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return {
      .exit_code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_),
      .out = out_so_far(),
      .err = err_so_far(),
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()};
}

std::string Process::out_so_far() const { return content(out_); }
std::string Process::err_so_far() const { return content(err_); }

ProcessResult run(const std::vector<std::string>& command,
                  const std::map<std::string, std::string>& environment,
                  std::chrono::seconds limit) {
  return Process(command, environment).wait(limit);
}

bool prints(Process& process, const std::string& text) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (true) {
    const bool ended = !process.running();  // before the look: what it printed last counts
    const std::string printed = process.out_so_far() + process.err_so_far();
    if (printed.find(text) != std::string::npos) return true;
    if (ended || std::chrono::steady_clock::now() > limit) {
      ADD_FAILURE() << "'" << text << "' was not printed: " << printed;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  return lines.empty() ? "" : lines.back();
}

std::string unwrapped(const std::string& printed) {
  static const std::regex kLineEnd("\n(?:    |                )(?=[^ \n])");
  return std::regex_replace(printed, kLineEnd, " ");
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto candidate = std::filesystem::path(folder) / name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.native();
  }
  return {};
}

}  // namespace tandem::testing
