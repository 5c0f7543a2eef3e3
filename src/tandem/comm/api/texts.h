// Texts of any length between the ranks of a communicator, which may differ from rank to rank; and
// agreement on them. All are collective.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/comm/api/communicator.h"

namespace tandem::comm {

// The text of `root`, on all ranks.
std::string broadcast_text(Communicator& communicator, std::string_view text, int root);
// The texts of all ranks, by rank; on all of them, or at `root` alone (elsewhere nothing).
std::vector<std::string> all_gather_texts(Communicator& communicator, std::string_view text);
std::vector<std::string> gather_texts(Communicator& communicator, std::string_view text, int root);
// All ranks must hold the same `value` of `name` ("flags", "dataset fingerprint"), one value or
// lines "name=value"; otherwise every rank throws a ConfigError with what differs, rank by rank
// (core/disagreement.h).
void agree(Communicator& communicator, std::string_view name, std::string_view value);

}  // namespace tandem::comm
