#include "apps/doctor/program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tandem/net/event_loop.h"
#include "tandem/net/socket.h"

namespace tandem::apps::doctor {
namespace {

using net::Deadline;
using net::FileDescriptor;

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

// -1 when the program does not start: then the child has reported it through `started`, which a
// successful exec closes.
pid_t spawn(const std::vector<std::string>& words, const Pipe& out, const Pipe& err) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const FileDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe started;
  const pid_t child = ::fork();
  if (child == 0) {  // only calls that are safe after a fork of a program with threads
    ::setpgid(0, 0);
    ::dup2(nothing.get(), 0);
    ::dup2(out.write_end.get(), 1);
    ::dup2(err.write_end.get(), 2);
    ::execvp(arguments[0], arguments.data());
    [[maybe_unused]] const ssize_t written = ::write(started.write_end.get(), "!", 1);
    ::_exit(127);
  }
  if (child < 0) return -1;
  started.write_end.reset();
  char byte = 0;
  ssize_t count = 0;
  do {
    count = ::read(started.read_end.get(), &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 0) return child;
  ::waitpid(child, nullptr, 0);
  return -1;
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
    net::EventLoop loop;
    loop.read(out.read_end, [&] { drain(out.read_end, result.out); });
    loop.read(err.read_end, [&] { drain(err.read_end, result.err); });
    loop.run_once(std::chrono::milliseconds(deadline.remaining_ms()));
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
