// The labels of a model as config.json has them: id2label, label2id and num_labels.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::models {

struct ModelLabels {
  std::vector<std::string> names;  // by id; empty: the file has none of the keys
  std::string error;               // why a task that needs labels cannot use them; else empty
  std::string note;                // what a user should know; else empty
};

// Reads id2label as transformers does: keys are whole numbers in any order, their count is the
// number of labels, and it wins over num_labels (as in
// transformers 4). Names that are not strings are written as Python's
// str() writes them. An id below the count without a name is called LABEL_<id>. Without id2label,
// num_labels gives the count.
ModelLabels read_labels(const nlohmann::json& config, std::string_view where);

// Writes both maps, unless `config` has them already. Removes num_labels, which
// transformers does not save.
void write_labels(nlohmann::ordered_json& config, const std::vector<std::string>& labels);

}  // namespace tandem::models
