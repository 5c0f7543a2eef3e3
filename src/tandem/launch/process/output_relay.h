// Forwards output of workers to files and to the console, in complete lines.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::launch {

// Lines of all workers that contain one of the texts are written to this file as well.
struct FilteredFile {
  net::FileDescriptor file;
  std::vector<std::string> needles;
};

struct RelayedStream {
  std::filesystem::path file;  // gets every byte unchanged; empty: none
  int console = -1;            // descriptor that gets prefixed lines; -1: none
  std::string prefix;
  std::optional<int> json_rank;            // console lines are JSON: other lines are converted
  bool err = false;                        // stderr
  std::shared_ptr<FilteredFile> filtered;  // may be null
};

// Opens a file for appending; throws IoError.
net::FileDescriptor open_log(const std::filesystem::path& path);

// Moves bytes on a separate thread, so that a blocked console (Ctrl-S) holds up only the workers
// that print. A line ends with LF or, as for Python, with CR; the last one may be unfinished. Lines
// longer than 64 KiB are cut on the console. One thread uses it.
class OutputRelay {
 public:
  OutputRelay();
  // Does not wait for streams that a process still holds open; see drain().
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  // The end for the worker's writes. Throws IoError.
  net::FileDescriptor add(RelayedStream stream);
  // Waits until all writers have closed and all output is written, at most this long: a process
  // that a worker started may hold a stream open forever.
  void drain(std::chrono::milliseconds limit);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tandem::launch
