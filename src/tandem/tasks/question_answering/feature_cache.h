// Features on disk, so that the next run with the same data, tokenizer and settings maps them
// instead of making them, and the ranks of a node share their memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/core/thread_pool.h"
#include "tandem/tasks/question_answering/features.h"

namespace tandem::question_answering {

// What features are made of.
struct FeatureSources {
  std::span<const std::filesystem::path> files;  // of questions
  std::filesystem::path tokenizer_directory;
  question_answering::FeatureOptions options;
};

// A folder with a file per key. A key is made of the contents of the question files and of the
// tokenizer's files, the settings, and this program's size and date: whatever could make other
// features makes another key. Files are written under temporary names and renamed, so any number of
// ranks and jobs may use the folder at once; each rank that finds no file makes the features
// itself.
// Nothing that goes wrong in the folder ends a job: it is told in notes(). Not thread-safe.
class FeatureCache {
 public:
  // Smaller question files are not cached: making their features takes less time than finding them.
  static constexpr std::uint64_t kMinQuestionBytes = std::uint64_t{4} << 20;
  // When a new file makes the folder larger, those used longest ago are removed.
  static constexpr std::uint64_t kMaxFolderBytes = std::uint64_t{2} << 30;

  // TANDEM_FEATURE_CACHE, unless it is "off"; else $XDG_CACHE_HOME/tandem/features, else
  // ~/.cache/tandem/features; nothing when it is off or none of them is set.
  static std::optional<std::filesystem::path> default_folder(const Environment& environment);

  // No folder: nothing is cached. `overwrite`: files that are older than this object are not used.
  FeatureCache(std::optional<std::filesystem::path> folder, bool overwrite);

  // The features that make() makes of `sources`.
  question_answering::FeatureSet get(const FeatureSources& sources,
                                     FunctionRef<question_answering::FeatureSet()> make);

  // What get() did, for the console; taken away by the call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  std::optional<question_answering::FeatureSet> find(const std::filesystem::path& path,
                                                     const std::string& key);
  void remove_oldest() const;

  const std::optional<std::filesystem::path> folder_;
  const bool overwrite_;
  const std::filesystem::file_time_type begin_;
  std::vector<std::string> notes_;
};

}  // namespace tandem::question_answering
