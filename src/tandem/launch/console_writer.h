// Text on its way to descriptors that may stand still (a terminal after Ctrl-S, a slow disk).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace tandem::launch {

// Writes all of `text` from the caller's thread, which waits while the descriptor stands still. A
// full disk or a closed console costs what is left of it, not the job. Any thread.
void write_all(int descriptor, std::string_view text);

// Writes in a thread of its own and in order. A full disk or a closed console costs the text, not
// the job. One thread uses it.
class ConsoleWriter {
 public:
  ConsoleWriter();
  // Gives up what has not been written; see drain().
  ~ConsoleWriter();
  ConsoleWriter(const ConsoleWriter&) = delete;
  ConsoleWriter& operator=(const ConsoleWriter&) = delete;

  void write(int descriptor, std::string text);
  // Bytes that wait.
  std::size_t backlog() const;
  // Waits until all is out, at most this long.
  void drain(std::chrono::milliseconds limit);

 private:
  struct State;
  std::shared_ptr<State> state_;  // outlives a thread that stands still
};

}  // namespace tandem::launch
