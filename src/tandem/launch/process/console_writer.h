// Writes text to descriptors that may block (a terminal after Ctrl-S, a slow disk).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace tandem::launch {

// Writes all of `text` on the caller's thread, which waits while the descriptor blocks. After a
// full disk or a closed console the rest of the text is dropped and the job continues. Any thread.
void write_all(int descriptor, std::string_view text);

// Writes on a separate thread and in order. After a full disk or a closed console the text is
// dropped and the job continues. One thread uses it.
class ConsoleWriter {
 public:
  ConsoleWriter();
  // Drops unwritten text; see drain().
  ~ConsoleWriter();
  ConsoleWriter(const ConsoleWriter&) = delete;
  ConsoleWriter& operator=(const ConsoleWriter&) = delete;

  void write(int descriptor, std::string text);
  // Waiting bytes.
  std::size_t backlog() const;
  // Waits until all text is written, at most this long.
  void drain(std::chrono::milliseconds limit);

 private:
  struct State;
  std::shared_ptr<State> state_;  // outlives a blocked thread
};

}  // namespace tandem::launch
