// A file that at most one process holds, by flock(2), with a text about its holder for other
// processes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// The kernel gives the lock back when its holder ends, however it ends; the file may then stay and
// means nothing. Movable; one thread at a time.
class LockFile {
 public:
  // Nothing while another process holds it. Never follows a symbolic link. Throws IoError when the
  // file cannot be made and when its file system has no locks.
  static std::optional<LockFile> try_acquire(const std::filesystem::path& path);
  // The last text that the holder wrote: its first line is for people ("process 4711 on node1").
  // Empty when nothing can be read.
  static std::string text_of(const std::filesystem::path& path);

  ~LockFile();
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&& other) noexcept;

  // Replaces the text by "process PID on HOST<more>". A full disk is ignored.
  void describe_holder(std::string_view more);
  // The file goes with the lock, unless another process waits for it.
  void remove_at_end() { removes_ = true; }

 private:
  LockFile(std::filesystem::path path, int descriptor);

  std::filesystem::path path_;
  int descriptor_ = -1;
  bool removes_ = false;
};

}  // namespace tandem
