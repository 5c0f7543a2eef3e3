// Features on disk, so that the next run with the same data, tokenizer and settings maps them
// instead of making them, and the ranks of a node share their memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/core/lock_file.h"
#include "tandem/core/thread_pool.h"
#include "tandem/tasks/feature_file.h"

namespace tandem::tasks {

// "NAME: .json 5f70bf…" in a line for each file: its extension and the SHA-256 of its content.
std::string content_key(std::string_view name, std::span<const std::filesystem::path> files);
// Bytes of all files; compressed ones are estimated.
std::uint64_t size_of(std::span<const std::filesystem::path> files);

// A digest of values, where they begin and end included: equal ones mean equal values.
class ContentDigest {
 public:
  template <class T>
  void add(std::span<const T> values) {
    static_assert(std::has_unique_object_representations_v<T>);
    add(std::as_bytes(values));
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  // Ends the digest: hexadecimal digits.
  std::string text();

 private:
  void add(std::span<const std::byte> bytes);

  std::string buffer_;  // begins with the digest of what was before
};

// A folder with a file per key. A key is made of the caller's text (the contents of the data and
// all settings), of the tokenizer's files, and of this program's size and date: whatever could make
// other features makes another key. Files are written under temporary names and renamed, so any
// number of ranks and jobs may use the folder at once; each rank that finds no file makes the
// features itself. A fault in the folder never ends a job: notes() reports it. Not thread-safe.
class FeatureCache {
 public:
  // Features of less data are not cached: making them takes less time than finding them.
  static constexpr std::uint64_t kMinDataBytes = std::uint64_t{4} << 20;
  // When a new file makes the folder larger, those used longest ago are removed.
  static constexpr std::uint64_t kMaxFolderBytes = std::uint64_t{2} << 30;

  // TANDEM_FEATURE_CACHE, unless it is "off"; else $XDG_CACHE_HOME/tandem/features, else
  // ~/.cache/tandem/features; nothing when it is off or none of them is set.
  static std::optional<std::filesystem::path> default_folder(const Environment& environment);

  // No folder: nothing is cached. `overwrite`: files that are older than this object are not used.
  FeatureCache(std::optional<std::filesystem::path> folder,
               std::filesystem::path tokenizer_directory, bool overwrite);

  // The features that make() makes of `data_bytes` bytes of texts or files. key() names all that
  // make() reads in addition to the tokenizer, and whose task's features they are; it is called
  // where features are cached.
  template <class Set>
  Set get(std::uint64_t data_bytes, FunctionRef<std::string()> key, FunctionRef<Set()> make) {
    if (!folder_ || data_bytes < kMinDataBytes) return make();
    std::optional<Set> set;
    find_or_keep(key(), {.read =
                             [&](const std::filesystem::path& path, std::string_view whole_key) {
                               if (auto found = read_feature_file<Set>(path, whole_key))
                                 set = std::move(found);
                               return set.has_value();
                             },
                         .make = [&] { set = make(); },
                         .write =
                             [&](const std::filesystem::path& path, std::string_view whole_key) {
                               write_feature_file(path, whole_key, *set);
                             }});
    return *std::move(set);
  }

  // Whether there is a folder.
  bool enabled() const { return folder_.has_value(); }
  // Features that may be larger than memory: write(path, key) makes them and writes the file of
  // this path and key. Precondition: enabled(). One process of a host writes, and the others
  // wait for it. Throws what write() throws, and IoError, because there is no copy elsewhere.
  template <class Set>
  Set get_file(FunctionRef<std::string()> key,
               FunctionRef<void(const std::filesystem::path& path, std::string_view key)> write) {
    std::optional<Set> set;
    find_or_write(
        key(),
        [&](const std::filesystem::path& path, std::string_view whole_key) {
          if (auto found = read_feature_file<Set>(path, whole_key)) set = std::move(found);
          return set.has_value();
        },
        write);
    return *std::move(set);
  }

  // Notes of the last calls for the console; the call clears them.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  // The parts that depend on the type of the features.
  using Read = FunctionRef<bool(const std::filesystem::path& path, std::string_view key)>;
  using Write = FunctionRef<void(const std::filesystem::path& path, std::string_view key)>;
  struct Steps {
    Read read;
    FunctionRef<void()> make;
    Write write;
  };
  // The file of some features, and the key that it must have.
  struct Entry {
    std::filesystem::path path;
    std::string key;
  };
  Entry entry(std::string_view data_key) const;
  void find_or_keep(std::string_view data_key, const Steps& steps);
  void find_or_write(std::string_view data_key, Read read, Write write);
  bool find(const Entry& entry, Read read);
  void write_and_read(const Entry& entry, Read read, Write write);
  static std::optional<LockFile> lock_of_writer(const Entry& entry);
  // All but `kept`, while the folder is too large.
  void remove_oldest(const std::filesystem::path& kept) const;

  const std::optional<std::filesystem::path> folder_;
  const std::filesystem::path tokenizer_directory_;
  const bool overwrite_;
  const std::filesystem::file_time_type begin_;
  std::vector<std::string> notes_;
  bool replaces_ = false;  // a file that is damaged or too old
};

}  // namespace tandem::tasks
