#include "apps/doctor/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tandem/rendezvous/socket.h"

extern char** environ;

namespace tandem::apps::doctor {
namespace {

using rendezvous::Deadline;
using rendezvous::FileDescriptor;

constexpr std::size_t kMaxOutput = 1 << 20;

// Appends what can be read; closes at the end of the stream.
void drain(FileDescriptor& pipe, std::string& text) {
  char bytes[4096];
  const ssize_t count = ::read(pipe.get(), bytes, sizeof bytes);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) return pipe.reset();
  if (text.size() < kMaxOutput) text.append(bytes, static_cast<std::size_t>(count));
}

struct Pipe {
  FileDescriptor read_end, write_end;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
      read_end = FileDescriptor(ends[0]);
      write_end = FileDescriptor(ends[1]);
    }
  }
};

pid_t spawn(const std::vector<std::string>& words, const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write_end.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, words[0].c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error == 0 ? child : -1;
}

}  // namespace

ProgramOutput run_program(const std::vector<std::string>& words, std::chrono::milliseconds limit) {
  ProgramOutput result;
  Pipe out, err;
  const pid_t child = spawn(words, out, err);
  if (child < 0) return result;
  result.started = true;
  out.write_end.reset();
  err.write_end.reset();
  const Deadline deadline(limit);
  while ((out.read_end || err.read_end) && !deadline.passed()) {
    pollfd waits[2] = {{out.read_end.get(), POLLIN, 0}, {err.read_end.get(), POLLIN, 0}};
    ::poll(waits, 2, deadline.remaining_ms());
    if (waits[0].revents != 0) drain(out.read_end, result.out);
    if (waits[1].revents != 0) drain(err.read_end, result.err);
  }
  // Both streams have ended: so has the program, or it is about to.
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(child, &status, WNOHANG)) == 0 && !deadline.passed()) ::usleep(1000);
  result.in_time = ended == child;
  if (ended == 0) {
    ::kill(-child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace tandem::apps::doctor
