#include "tandem/tasks/inspect_sequences.h"

#include <ostream>
#include <vector>

#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::tasks {

void inspect_sequences(std::string_view task, const TokenSequences& features,
                       std::span<const std::string> labels,
                       FunctionRef<void(std::size_t i, nlohmann::ordered_json& line)> add_labels,
                       std::ostream& output) {
  const nlohmann::ordered_json header = {{"task", task},
                                         {"features", features.size()},
                                         {"max_length", features.max_seq_length()},
                                         {"labels", std::vector(labels.begin(), labels.end())}};
  output << python_json(header) << '\n';
  for (std::size_t i = 0; i < features.size(); ++i) {
    std::vector<std::int32_t> ids, types;
    features.append_tokens(i, ids, types);
    nlohmann::ordered_json line = {
        {"i", i}, {"n_real", ids.size()}, {"input_ids", ids}, {"token_type_ids", types}};
    add_labels(i, line);
    output << python_json(line) << '\n';
  }
}

}  // namespace tandem::tasks
