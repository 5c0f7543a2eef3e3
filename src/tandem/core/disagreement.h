// Describes the differences between texts that must be equal on all ranks.
#pragma once

#include <span>
#include <string>

#include "tandem/core/thread_pool.h"

namespace tandem {

// The lines "name=value" that are not the same in all `texts` (one for each rank), with the values
// and the ranks that have them: "seed: 42 on rank 0 (host a, pid 1) and rank 2 (host b, pid 3), 43
// on rank 1 (host a, pid 2)", one line each, twelve at most. A text without '=' is one value
// without a name. An empty value is shown as "(empty)". Empty: the texts are equal. A text is a set
// of lines, so their order does not matter.
std::string describe_disagreement(std::span<const std::string> texts,
                                  FunctionRef<std::string(int)> describe_rank);

// A list "name=value,name=value" as such lines. A comma before a blank is one of a value's.
std::string lines_of_list(std::string list);

}  // namespace tandem
