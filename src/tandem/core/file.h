// Whole files: read, map, and replace atomically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// The content of a file. Throws IoError (also for a directory).
std::string read_file(const std::filesystem::path& path);

// Nothing when the file does not exist; throws IoError for any other failure.
std::optional<std::string> read_file_if_exists(const std::filesystem::path& path);

// The same in pieces: each is read into `piece`, and what is there is taken. Throws IoError.
void read_in_pieces(const std::filesystem::path& path, std::span<std::byte> piece,
                    const std::function<void(std::span<const std::byte>)>& take);

// The entries of a directory, unordered; empty if the directory does not exist. Throws IoError for
// any other failure.
std::vector<std::filesystem::path> list_directory(const std::filesystem::path& directory);

// The users that may have written a mapped file.
enum class Writers : std::uint8_t {
  kAnybody,
  kThisUser,  // or root: its owner is no other user, and it is not writable by all users
};

// A read-only private mapping of a file; unmapped on destruction. Throws IoError. Where the volume
// goes, or the file shrinks, reading the mapping raises SIGBUS; file_mapped_at() then knows it.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // with kAnybody
  MappedFile(const std::filesystem::path& path, Writers writers);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Writes a file under a temporary name in the same directory, one that is unpredictable and does
// not exist yet (no link of another user is followed); commit() syncs it, renames it over `path`
// and syncs the directory. Without commit() the destructor removes the temporary file, so a failed
// writer leaves the old file; a killed one leaves the temporary file too, for
// remove_abandoned_files().
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);  // throws IoError; short writes are continued
  void write(std::string_view text);
  void commit();
  // Without syncing, for what can be made again: a crash of the machine may leave the file empty.
  // If another process has made the file meanwhile, that one stays: others may have mapped it, and
  // a file of NFS that another host replaces is lost for its readers.
  void publish_if_new();

 private:
  void close_it();
  void rename_it();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

// A temporary file without a name, in TMPDIR, else in /tmp; a kill leaves nothing of it. Errors of
// all calls are IoError and name the folder. Several threads may read.
class UnnamedFile {
 public:
  UnnamedFile();
  ~UnnamedFile();
  UnnamedFile(UnnamedFile&& other) noexcept;
  UnnamedFile& operator=(UnnamedFile&& other) noexcept;

  std::uint64_t size() const { return size_; }
  void append(std::span<const std::byte> bytes) { write_at(size_, bytes); }
  void write_at(std::uint64_t position, std::span<const std::byte> bytes);
  // Fills `bytes`; a file that ends before is an error.
  void read_at(std::uint64_t position, std::span<std::byte> bytes) const;
  // A path that this process can open while the object lives. Open files outlive the object.
  std::filesystem::path path() const;

 private:
  std::filesystem::path folder_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// AtomicFile for a text in memory.
void write_file(const std::filesystem::path& path, std::string_view text);

// Removes the temporary files that killed writers left in a directory, which must be this process's
// alone. Throws nothing: what cannot be removed stays.
void remove_abandoned_files(const std::filesystem::path& directory) noexcept;

// Makes directory entries (renames, new files) durable. Throws IoError.
void sync_directory(const std::filesystem::path& directory);

}  // namespace tandem
