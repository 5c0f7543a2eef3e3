// A program whose three streams are a terminal of its own.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace tandem::testing {

struct TerminalResult {
  int exit_code = -1;
  std::string output;  // output of both streams, as sent, with "\n" for "\r\n"
};

// Starts the command in a terminal of `columns` and reads until it ends. After a minute it is
// killed and the test fails.
inline TerminalResult run_in_terminal(const std::vector<std::string>& command, int columns,
                                      const std::map<std::string, std::string>& environment = {}) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const winsize size{
      .ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  TerminalResult result;
  std::array<char, 4096> part{};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  pollfd ready{.fd = terminal, .events = POLLIN, .revents = 0};
  bool open = true;
  while (open && std::chrono::steady_clock::now() < deadline) {
    if (::poll(&ready, 1, 100) <= 0) continue;
    const ssize_t got = ::read(terminal, part.data(), part.size());
    open = got > 0;  // EIO: no process has the terminal open any more
    for (ssize_t i = 0; i < got; ++i) {
      const char c = part[static_cast<std::size_t>(i)];
      if (c == '\n' && result.output.ends_with('\r')) result.output.pop_back();
      result.output += c;
    }
  }
  if (open) {
    ::kill(child, SIGKILL);
    ADD_FAILURE() << command.front() << " did not end within a minute";
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace tandem::testing
