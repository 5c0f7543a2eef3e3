#include "tandem/launch/process/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/launch/process/child_watch.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {
namespace {

using net::FileDescriptor;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// The child's data, prepared before fork(): between fork and exec only system calls are allowed.
struct Prepared {
  std::vector<std::string> words;
  std::vector<std::string> variables;
  std::vector<char*> argv;
  std::vector<char*> envp;
  cpu_set_t cpus;
  bool pinned = false;
  int out = -1;
  int err = -1;
  int in = -1;
  int kept = -1;
  std::string directory;
  const std::vector<int>* inherited = nullptr;
};

Prepared prepare(const WorkerStart& start) {
  Prepared ready;
  ready.words = start.command;
  for (const auto& [name, value] : start.environment) ready.variables.push_back(name + '=' + value);
  ready.argv = pointers(ready.words);
  ready.envp = pointers(ready.variables);
  CPU_ZERO(&ready.cpus);
  for (const int cpu : start.cpus) CPU_SET(static_cast<std::size_t>(cpu), &ready.cpus);
  ready.pinned = !start.cpus.empty();
  ready.out = start.out;
  ready.err = start.err;
  ready.in = start.in;
  ready.kept = start.kept;
  ready.directory = start.directory;
  ready.inherited = &start.inherited;
  return ready;
}

[[noreturn]] void become_worker(const Prepared& ready, int report, pid_t parent) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (ready.pinned) ::sched_setaffinity(0, sizeof ready.cpus, &ready.cpus);
  const bool placed = (ready.out < 0 || ::dup2(ready.out, STDOUT_FILENO) >= 0) &&
                      (ready.err < 0 || ::dup2(ready.err, STDERR_FILENO) >= 0) &&
                      (ready.in < 0 || ::dup2(ready.in, STDIN_FILENO) >= 0) &&
                      (ready.kept < 0 || ::fcntl(ready.kept, F_SETFD, 0) == 0) &&
                      (ready.directory.empty() || ::chdir(ready.directory.c_str()) == 0);
  for (const int descriptor : *ready.inherited) ::fcntl(descriptor, F_SETFD, 0);
  if (placed) ::execve(ready.argv[0], ready.argv.data(), ready.envp.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof error);
  ::_exit(127);
}

// errno of the child if its program cannot run; 0: it runs; nothing: neither in time.
std::optional<int> error_of_start(int report, std::chrono::milliseconds timeout) {
  if (!net::wait_readable(report, net::Deadline(timeout))) return std::nullopt;
  int error = 0;
  return ::read(report, &error, sizeof error) == sizeof error ? error : 0;
}

}  // namespace

bool Ending::is_fault() const {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
         signal == SIGABRT;
}

std::string Ending::text() const {
  if (signal == 0) return fmt::format("exited with {}", code);
  return fmt::format("was killed by {}", signal_name(signal));
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

Worker::Worker(const WorkerStart& start) {
  const Prepared ready = prepare(start);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw io_error("cannot make", "a pipe", errno);
  const FileDescriptor report(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw io_error("cannot start", start.command.front(), errno);
  if (pid_ == 0) become_worker(ready, write_end.get(), parent);
  write_end.reset();
  const std::optional<int> error = error_of_start(report.get(), start.timeout);
  if (!error) ::kill(pid_, SIGKILL);  // poll() returns how it ended
  if (error && *error != 0) {
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    raise<ConfigError>("cannot start '{}': {}", start.command.front(), std::strerror(*error));
  }
  descriptor_ = watch_child(pid_);
  if (!descriptor_) {
    const int reason = errno;
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    throw io_error("cannot watch", fmt::format("process of {}", start.command.front()), reason);
  }
}

Worker::Worker(Worker&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      descriptor_(std::move(other.descriptor_)),
      ending_(other.ending_) {}

Worker::~Worker() {
  if (pid_ < 0 || ending_) return;
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Worker::signal(int number) {
  if (pid_ <= 0 || ending_) return;
  ::kill(-pid_, number);
  constexpr int kAsksToEnd[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  if (std::find(std::begin(kAsksToEnd), std::end(kAsksToEnd), number) != std::end(kAsksToEnd))
    ::kill(-pid_, SIGCONT);
}

// Until it is reaped, its process number, and so its group's, is not reused.
const std::optional<Ending>& Worker::poll() {
  if (ending_ || pid_ < 0) return ending_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return ending_;
  }
  Ending ending;
  (info.si_code == CLD_EXITED ? ending.code : ending.signal) = info.si_status;
  if (!ending.ok()) ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ending_ = ending;
  return ending_;
}

}  // namespace tandem::launch
