// Which split of a data set plays which part in a job: run_classification's --train_split_name and
// its relatives.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::hub {

struct SplitNames {
  // A split that takes the place of the part's own.
  std::optional<std::string> train = {}, validation = {}, test = {};
  std::vector<std::string> removed = {};  // splits that are as good as absent
};

// The part that `split` plays: "train", "validation" or "test" where it was named for one, else its
// own name; empty when it plays none, because it is removed or another split has its place.
std::string_view played_by(const SplitNames& names, std::string_view split);

}  // namespace tandem::hub
