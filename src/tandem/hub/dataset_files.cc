#include "tandem/hub/dataset_files.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/hub/hub_cache.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;

struct Part {
  std::string_view name;
  std::array<std::string_view, 4> words;
  std::optional<fs::path> DatasetFiles::*file;
};

constexpr Part kParts[] = {
    {"training", {"train", "training", "", ""}, &DatasetFiles::train},
    {"validation", {"validation", "valid", "dev", "val"}, &DatasetFiles::validation},
    {"test", {"test", "testing", "eval", "evaluation"}, &DatasetFiles::test},
};

// Whether `word` stands in a file name between separators, as datasets recognises the parts of a
// data set.
bool has_word(const std::string& stem, std::string_view word) {
  const auto is_separator = [&](std::size_t at) {
    return at >= stem.size() ||
           std::string_view("-_. 0123456789").find(stem[at]) != std::string_view::npos;
  };
  for (std::size_t at = stem.find(word); at != std::string::npos; at = stem.find(word, at + 1)) {
    if ((at == 0 || is_separator(at - 1)) && is_separator(at + word.size())) return true;
  }
  return false;
}

std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->is_directory(error)) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool has_extension(const fs::path& file, std::initializer_list<std::string_view> extensions) {
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](std::string_view extension) { return file.extension() == extension; });
}

void assign(DatasetFiles& files, const Part& part, const fs::path& file) {
  std::optional<fs::path>& place = files.*(part.file);
  if (place) {
    raise<DataError>(
        "{}: both {} and {} look like the {} part; give --train_file and --validation_file instead",
        files.directory.string(), place->filename().string(), file.filename().string(), part.name);
  }
  place = file;
}

// Sorts the readable files of one folder into the parts; false when there are none.
bool take_folder(DatasetFiles& files, const fs::path& folder) {
  bool found = false;
  for (const fs::path& file : files_in(folder)) {
    if (!has_extension(file, {".json", ".jsonl"})) continue;
    const std::string stem = file.stem().string();
    for (const Part& part : kParts) {
      const bool matches =
          std::any_of(part.words.begin(), part.words.end(),
                      [&](std::string_view word) { return !word.empty() && has_word(stem, word); });
      if (!matches) continue;
      assign(files, part, file);
      found = true;
      break;
    }
  }
  return found;
}

[[noreturn]] void nothing_readable(const fs::path& directory,
                                   const std::vector<fs::path>& folders) {
  std::string unreadable;
  for (const fs::path& folder : folders) {
    for (const fs::path& file : files_in(folder)) {
      if (unreadable.empty() && has_extension(file, {".parquet", ".arrow", ".csv"}))
        unreadable = file.filename().string();
    }
  }
  raise<DataError>(
      "{}: no file such as train-v1.1.json, dev-v1.1.json or validation.jsonl{}; Arrow, Parquet "
      "and CSV data sets cannot be read "
      "yet: give --train_file and --validation_file with SQuAD JSON or JSON lines",
      directory.string(), unreadable.empty() ? "" : fmt::format(" (but {})", unreadable));
}

}  // namespace

DatasetFiles resolve_dataset(const std::string& name, const std::optional<std::string>& config,
                             const std::optional<std::string>& cache_dir,
                             const Environment& environment) {
  // run_qa.py's --cache_dir is the root of the models' cache too: a data set may lie there or in
  // the usual place.
  Query query;
  query.name = name;
  query.type = RepositoryType::kDataset;
  Resolved resolved;
  if (cache_dir && fs::is_directory(*cache_dir) && !fs::is_directory(name)) {
    query.cache_dir = cache_dir;
    try {
      resolved = resolve(query, environment);
    } catch (const DataError&) {
      query.cache_dir.reset();
      resolved = resolve(query, environment);
    }
  } else {
    resolved = resolve(query, environment);
  }
  DatasetFiles files;
  files.directory = resolved.directory;
  std::vector<fs::path> folders;
  if (config) folders.push_back(files.directory / *config);
  folders.push_back(files.directory);
  folders.push_back(files.directory / "data");
  for (const fs::path& folder : folders) {
    if (take_folder(files, folder)) return files;
  }
  nothing_readable(files.directory, folders);
}

}  // namespace tandem::hub
