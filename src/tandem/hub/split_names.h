// Which split of a data set plays which part in a job: run_classification's --train_split_name and
// its relatives.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::hub {

// The words in names of files and folders that name a split, as in `datasets`.
struct SplitWords {
  const char* split;
  std::array<std::string_view, 4> words;
};
inline constexpr SplitWords kSplitWords[] = {{"train", {"train", "training", "", ""}},
                                             {"validation", {"validation", "valid", "dev", "val"}},
                                             {"test", {"test", "testing", "eval", "evaluation"}}};

struct SplitNames {
  // A split to use instead of the part's own.
  std::optional<std::string> train = {}, validation = {}, test = {};
  std::vector<std::string> removed = {};  // splits that are as good as absent
};

// The part that `split` plays: "train", "validation" or "test" where it was named for one, else its
// own name; empty when it plays none, because it is removed or another split has its place.
std::string_view played_by(const SplitNames& names, std::string_view split);

}  // namespace tandem::hub
