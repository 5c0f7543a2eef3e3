// Features with labels as JSON lines, for `tandem inspect features`.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "tandem/core/thread_pool.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::tasks {

// A header line {"task", "features", "max_length", "labels"}, then a line for each feature, without
// padding: {"i", "n_real", "input_ids", "token_type_ids"} and what add_labels() adds to it.
void inspect_sequences(std::string_view task, const TokenSequences& features,
                       std::span<const std::string> labels,
                       FunctionRef<void(std::size_t i, nlohmann::ordered_json& line)> add_labels,
                       std::ostream& output);

}  // namespace tandem::tasks
