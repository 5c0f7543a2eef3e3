#include "tandem/tasks/feature_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/interruption.h"
#include "tandem/core/own_program.h"
#include "tandem/formats/compressed_file.h"
#include "tandem/hub/file_hash.h"
#include "tandem/text/tokenizer.h"

namespace tandem::tasks {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".features";

// Writers of a folder share its lock; a process that removes the leftovers of killed writers holds
// it alone. The kernel releases the lock however its holder ends.
class WritersLock {
 public:
  // Waits for a moment at most: no process holds it alone for longer than listing the folder takes.
  static WritersLock of_writer(const fs::path& folder) { return {folder, LOCK_SH}; }
  // Not held while a process writes, and where the file system has no locks.
  static WritersLock alone(const fs::path& folder) { return {folder, LOCK_EX | LOCK_NB}; }
  ~WritersLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  WritersLock(const WritersLock&) = delete;
  WritersLock& operator=(const WritersLock&) = delete;
  bool held() const { return held_; }

 private:
  WritersLock(const fs::path& folder, int operation) {
    constexpr int kFlags = O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    const fs::path path = folder / ".writers";
    descriptor_ = ::open(path.c_str(), O_RDWR | kFlags, 0666);
    if (descriptor_ < 0) descriptor_ = ::open(path.c_str(), O_RDONLY | kFlags, 0666);  // another's
    held_ = descriptor_ >= 0 && ::flock(descriptor_, operation) == 0;
  }
  int descriptor_ = -1;
  bool held_ = false;
};

// Bytes of natural language for each one that gzip or Zstandard writes, about.
constexpr std::uint64_t kTextPerCompressedByte = 4;

// Which build this is: its features may differ from those of the one before.
std::string program_identity() {
  struct stat info {};
  if (::stat(own_binary().c_str(), &info) != 0) return "unknown";
  return fmt::format("{} bytes of {}.{}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

std::string tokenizer_key(const fs::path& directory) {
  std::string key;
  for (const std::string_view name : text::Tokenizer::kFiles) {
    const auto text = read_file_if_exists(directory / name);
    if (text) key += fmt::format("{}: {}\n", name, hub::sha256(std::as_bytes(std::span(*text))));
  }
  return key;
}

}  // namespace

std::string content_key(std::string_view name, std::span<const fs::path> files) {
  std::string key;
  for (const fs::path& file : files) {
    key += fmt::format("{}: {} {}\n", name, formats::format_ending(file), hub::sha256_of(file));
  }
  return key;
}

std::uint64_t size_of(std::span<const fs::path> files) {
  std::uint64_t bytes = 0;
  for (const fs::path& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    const bool compressed = formats::uncompressed_name(file) != file;
    if (!error) bytes += compressed ? kTextPerCompressedByte * size : size;
  }
  return bytes;
}

void ContentDigest::add(std::span<const std::byte> bytes) {
  constexpr std::size_t kEnough = 1 << 20;
  const std::uint64_t size = bytes.size();
  buffer_.append(reinterpret_cast<const char*>(&size), sizeof(size));
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (buffer_.size() >= kEnough) buffer_ = text();
}

std::string ContentDigest::text() { return hub::sha256(std::as_bytes(std::span(buffer_))); }

std::optional<fs::path> FeatureCache::default_folder(const Environment& environment) {
  constexpr std::string_view kFolder = "tandem/features";
  if (const auto folder = environment.get("TANDEM_FEATURE_CACHE")) {
    return *folder == "off" ? std::nullopt : std::optional<fs::path>(*folder);
  }
  if (const auto cache = environment.get("XDG_CACHE_HOME")) return fs::path(*cache) / kFolder;
  if (const auto home = environment.get("HOME")) return fs::path(*home) / ".cache" / kFolder;
  return std::nullopt;
}

FeatureCache::FeatureCache(std::optional<fs::path> folder, fs::path tokenizer_directory,
                           bool overwrite)
    : folder_(std::move(folder)),
      tokenizer_directory_(std::move(tokenizer_directory)),
      overwrite_(overwrite),
      begin_(fs::file_time_type::clock::now()) {}

FeatureCache::Entry FeatureCache::entry(std::string_view data_key) const {
  std::string key = fmt::format("program: {}\n{}{}", program_identity(), data_key,
                                tokenizer_key(tokenizer_directory_));
  const std::string digest = hub::sha256(std::as_bytes(std::span(key)));
  return {*folder_ / (digest.substr(0, 32) + std::string(kExtension)), std::move(key)};
}

void FeatureCache::find_or_keep(std::string_view data_key, const Steps& steps) {
  const Entry wanted = entry(data_key);
  if (const auto lock = WritersLock::alone(*folder_); lock.held()) remove_abandoned_files(*folder_);
  if (find(wanted, steps.read)) return;
  steps.make();
  try {
    // The heap's copy goes; the file's is shared by all ranks of the node.
    write_and_read(wanted, steps.read, steps.write);
  } catch (const Error& error) {
    notes_.push_back(fmt::format("features are not kept for the next run: {}", error.what()));
  } catch (const fs::filesystem_error& error) {
    notes_.push_back(fmt::format("features are not kept for the next run: {}", error.what()));
  }
}

void FeatureCache::write_and_read(const Entry& entry, Read read, Write write) {
  fs::create_directories(*folder_);
  const auto lock = WritersLock::of_writer(*folder_);
  // An entry that find() rejects. Another pod's of the same key, made meanwhile, stays.
  if (replaces_) fs::remove(entry.path);
  write(entry.path, entry.key);
  remove_oldest(entry.path);
  notes_.push_back(fmt::format("features are kept in {} for the next run", entry.path.string()));
  read(entry.path, entry.key);
}

// A file of a large corpus takes minutes and gigabytes, so that two writers would be one too many.
void FeatureCache::find_or_write(std::string_view data_key, Read read, Write write) {
  try {
    const Entry wanted = entry(data_key);
    fs::create_directories(*folder_);
    if (const auto lock = WritersLock::alone(*folder_); lock.held())
      remove_abandoned_files(*folder_);
    if (find(wanted, read)) return;
    const std::optional<LockFile> writer = lock_of_writer(wanted);
    const std::size_t notes = notes_.size();
    if (find(wanted, read)) return;  // written by the process that had the lock
    notes_.resize(notes);
    bool written = false;
    write_and_read(
        wanted,
        [&](const fs::path& path, std::string_view key) { return written = read(path, key); },
        write);
    if (!written) raise<IoError>("file of features '{}': removed meanwhile", wanted.path.string());
  } catch (const fs::filesystem_error& error) {
    throw io_error("cannot use the folder of features", folder_->native(), error.code().value());
  }
}

// Waits while another process has the lock. Nothing where the file system has no locks.
std::optional<LockFile> FeatureCache::lock_of_writer(const Entry& entry) {
  constexpr auto kPollInterval = std::chrono::milliseconds(100);
  const fs::path path = fs::path(entry.path) += ".lock";
  try {
    while (true) {
      if (auto lock = LockFile::try_acquire(path)) {
        lock->describe_holder(" writes features");
        lock->remove_at_end();
        return lock;
      }
      throw_if_interrupted();
      std::this_thread::sleep_for(kPollInterval);
    }
  } catch (const IoError&) {
    return std::nullopt;
  }
}

bool FeatureCache::find(const Entry& entry, Read read) {
  const fs::path& path = entry.path;
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  replaces_ = !error;
  if (error || (overwrite_ && written < begin_)) return false;
  try {
    if (!read(path, entry.key)) return false;
    // So that remove_oldest() knows what is in use.
    if (!overwrite_) fs::last_write_time(path, fs::file_time_type::clock::now(), error);
    notes_.push_back(
        fmt::format("features come from {}; --overwrite_cache makes them anew", path.string()));
    return true;
  } catch (const Error& problem) {
    notes_.push_back(fmt::format("{}; features are made anew", problem.what()));
    return false;
  }
}

void FeatureCache::remove_oldest(const fs::path& kept) const {
  struct File {
    fs::path path;
    fs::file_time_type used;
    std::uint64_t bytes;
  };
  std::vector<File> files;
  std::uint64_t bytes = 0;
  std::error_code error;
  const auto yesterday = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (const auto& entry : fs::directory_iterator(*folder_, error)) {
    const File file{entry.path(), entry.last_write_time(error), entry.file_size(error)};
    if (error) continue;  // gone meanwhile
    if (file.path.extension() == kExtension) {
      if (file.path != kept) files.push_back(file);
      bytes += file.bytes;
    } else if (file.path.filename().string().find(".tmp-") != std::string::npos &&
               file.used < yesterday) {
      // Left by a killed writer, on a file system without locks that would show it at once.
      fs::remove(file.path, error);
    }
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (bytes <= kMaxFolderBytes) return;
    fs::remove(file.path, error);
    bytes -= file.bytes;
  }
}

}  // namespace tandem::tasks
