#include "tandem/tasks/question_answering/feature_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/hub/file_hash.h"
#include "tandem/tasks/question_answering/feature_file.h"
#include "tandem/text/tokenizer.h"

namespace tandem::question_answering {
namespace {

namespace fs = std::filesystem;
using question_answering::FeatureSet;

constexpr std::string_view kExtension = ".features";

// Which build this is: its features may differ from those of the one before.
std::string program_identity() {
  struct stat info {};
  if (::stat("/proc/self/exe", &info) != 0) return "unknown";
  return fmt::format("{} bytes of {}.{}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

std::string key_of(const FeatureSources& sources) {
  std::string key = fmt::format("program: {}\n", program_identity());
  for (const fs::path& file : sources.files) {
    key += fmt::format("questions: {} {}\n", file.extension().string(),
                       hub::sha256(MappedFile(file).bytes()));
  }
  for (const std::string_view name : text::Tokenizer::kFiles) {
    const auto text = read_file_if_exists(sources.tokenizer_directory / name);
    if (text) key += fmt::format("{}: {}\n", name, hub::sha256(std::as_bytes(std::span(*text))));
  }
  const auto& options = sources.options;
  key += fmt::format(
      "max_seq_length: {}\nmax_positions: {}\ndoc_stride: {}\nlabels: {}\npadding: "
      "{}\nfix_last_token_labels: {}\n"
      "skip_unusable: {}\nmax_samples: {}\n",
      options.max_seq_length, options.max_positions, options.doc_stride, options.labels,
      static_cast<int>(options.padding), options.fix_last_token_labels, options.skip_unusable,
      options.max_samples);
  return key;
}

std::uint64_t size_of(std::span<const fs::path> files) {
  std::uint64_t bytes = 0;
  for (const fs::path& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace

std::optional<fs::path> FeatureCache::default_folder(const Environment& environment) {
  constexpr std::string_view kFolder = "tandem/features";
  if (const auto folder = environment.get("TANDEM_FEATURE_CACHE")) {
    return *folder == "off" ? std::nullopt : std::optional<fs::path>(*folder);
  }
  if (const auto cache = environment.get("XDG_CACHE_HOME")) return fs::path(*cache) / kFolder;
  if (const auto home = environment.get("HOME")) return fs::path(*home) / ".cache" / kFolder;
  return std::nullopt;
}

FeatureCache::FeatureCache(std::optional<fs::path> folder, bool overwrite)
    : folder_(std::move(folder)), overwrite_(overwrite), begin_(fs::file_time_type::clock::now()) {}

FeatureSet FeatureCache::get(const FeatureSources& sources, FunctionRef<FeatureSet()> make) {
  if (!folder_ || size_of(sources.files) < kMinQuestionBytes) return make();
  const std::string key = key_of(sources);
  const std::string digest = hub::sha256(std::as_bytes(std::span(key)));
  const fs::path path = *folder_ / (digest.substr(0, 32) + std::string(kExtension));
  if (auto found = find(path, key)) return *std::move(found);
  FeatureSet features = make();
  try {
    fs::create_directories(*folder_);
    question_answering::write_feature_file(path, key, features);
    remove_oldest();
    notes_.push_back(fmt::format("features are kept in {} for the next run", path.string()));
    // The heap's copy goes; the file's is shared by all ranks of the node.
    if (auto mapped = question_answering::read_feature_file(path, key)) return *std::move(mapped);
  } catch (const Error& error) {
    notes_.push_back(fmt::format("features are not kept for the next run: {}", error.what()));
  } catch (const fs::filesystem_error& error) {
    notes_.push_back(fmt::format("features are not kept for the next run: {}", error.what()));
  }
  return features;
}

std::optional<FeatureSet> FeatureCache::find(const fs::path& path, const std::string& key) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  if (error || (overwrite_ && written < begin_)) return std::nullopt;
  try {
    auto features = question_answering::read_feature_file(path, key);
    if (!features) return std::nullopt;
    // So that remove_oldest() knows what is in use.
    if (!overwrite_) fs::last_write_time(path, fs::file_time_type::clock::now(), error);
    notes_.push_back(
        fmt::format("features come from {}; --overwrite_cache makes them anew", path.string()));
    return features;
  } catch (const Error& problem) {
    notes_.push_back(fmt::format("{}; features are made anew", problem.what()));
    return std::nullopt;
  }
}

void FeatureCache::remove_oldest() const {
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
      files.push_back(file);
      bytes += file.bytes;
    } else if (file.path.filename().string().find(".tmp-") != std::string::npos &&
               file.used < yesterday) {
      fs::remove(file.path, error);  // of a writer that was killed
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

}  // namespace tandem::question_answering
