// Exchange of texts whose lengths may differ between the ranks of a communicator, and agreement on
// them. All functions are collective.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem::comm {

// Returns the text of `root`, on all ranks.
std::string broadcast_text(Communicator& communicator, std::string_view text, int root);
// Returns the texts of all ranks, by rank; on all of them, or only at `root` (elsewhere an empty
// result).
std::vector<std::string> all_gather_texts(Communicator& communicator, std::string_view text);
std::vector<std::string> gather_texts(Communicator& communicator, std::string_view text, int root);
// All ranks must hold the same `value` of `name` ("flags", "dataset fingerprint"), one value or
// lines "name=value". Otherwise every rank throws a ConfigError with the differences, rank by rank
// (core/disagreement.h).
void agree(Communicator& communicator, std::string_view name, std::string_view value);

}  // namespace tandem::comm
