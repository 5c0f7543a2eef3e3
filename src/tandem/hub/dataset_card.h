// The card of a data set: which files each split of each configuration has.
// Source: datasets 5.x (data_files.py, packaged_modules, utils/metadata.py) and the Hub's
// documentation of `configs:`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::hub {

// One entry of `configs:`.
struct CardConfiguration {
  std::string name = "default";
  bool is_default = false;
  std::string directory;  // data_dir, from the root of the data set; empty: the root
  // Splits in the order of the card, each with its patterns from `directory`. Empty: splits are
  // found by the names of files and folders.
  std::vector<std::pair<std::string, std::vector<std::string>>> patterns;
};

// The files that describe a data set, the first one wins.
inline constexpr std::string_view kCardFiles[] = {".huggingface.yaml", "README.md"};

// `configs:` of a card: the front matter of README.md between two lines "---", or all of
// .huggingface.yaml. Empty: the card names no configuration. Throws DataError that begins with
// `where`: text that is not YAML, entries of another form, settings of a reader ("sep", "encoding",
// …), which would change what is read.
std::vector<CardConfiguration> read_card(std::string_view text, bool whole_text,
                                         const std::string& where);

// The configuration named `wanted`; without a name the only one, "default", or the one with
// `default: true`. Throws DataError that lists the names, also for several defaults.
const CardConfiguration& choose_configuration(const std::vector<CardConfiguration>& all,
                                              const std::optional<std::string>& wanted,
                                              const std::string& where);

// Splits and their files, each list sorted by name.
using FilesOfSplits = std::map<std::string, std::vector<std::string>>;

// `names`: files of a data set, relative to its root, with '/'. Files that `datasets` ignores
// (README.md, hidden files, folders like __pycache__) belong to no split.

// By the patterns of a configuration. `missing` gets the paths without wildcards that no file has;
// a pattern with wildcards may match nothing, as in `datasets`.
FilesOfSplits files_of_patterns(const std::vector<std::string>& names,
                                const CardConfiguration& configuration,
                                std::vector<std::string>& missing);

// Without patterns, as datasets looks for splits below `directory`: by folders, see below; else
// files with a split's word (kSplitWords) in their name; else all files are the split "train".
FilesOfSplits files_by_name(const std::vector<std::string>& names, const std::string& directory);

// The splits of data/SPLIT-00000-of-00001.*; else those of folders with a split's word in their
// name; else none.
FilesOfSplits files_by_folder(const std::vector<std::string>& names, const std::string& directory);

// Whether `word` stands in a name between separators: "train" in "my-train_2.csv".
bool has_word(std::string_view name, std::string_view word);

// Whether `path` matches `pattern`: `*` and `?` inside a component, `[…]`, and `**` as a whole
// component for any number of folders. Braces have no meaning.
bool matches_pattern(std::string_view path, std::string_view pattern);

}  // namespace tandem::hub
