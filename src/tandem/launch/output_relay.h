// What workers print, on its way to files and to the console, in whole lines.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::launch {

// Lines that contain one of the texts, of all workers, go to this file as well.
struct FilteredFile {
  rendezvous::FileDescriptor file;
  std::vector<std::string> needles;
};

struct RelayedStream {
  std::filesystem::path file;  // gets every byte as it came; empty: none
  int console = -1;            // descriptor that gets prefixed lines; -1: none
  std::string prefix;
  std::optional<int> json_rank;  // console lines are JSON: what is none already becomes it
  bool err = false;              // stderr
  std::shared_ptr<FilteredFile> filtered;  // may be null
};

// Opens a file for appending; throws IoError.
rendezvous::FileDescriptor open_log(const std::filesystem::path& path);

// Moves bytes in a thread of its own, so that a console that stands still (Ctrl-S) holds up the
// workers that print, and nobody else. A line ends with \n or, as for Python, with \r; the last one
// may be unfinished. Lines longer than 64 KiB are cut on the console. One thread uses it.
class OutputRelay {
 public:
  OutputRelay();
  // Does not wait for streams that somebody still holds open; see drain().
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  // The end for the worker to write to. Throws IoError.
  rendezvous::FileDescriptor add(RelayedStream stream);
  // Waits until all writers have closed and everything is out, at most this long: somebody whom a
  // worker started may hold a stream open for ever.
  void drain(std::chrono::milliseconds limit);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tandem::launch
