// Which cores this process may run on.
#pragma once

#include <vector>

namespace tandem {

// CPU numbers in ascending order, one for each physical core of the affinity mask: hardware threads
// of one core count once.
std::vector<int> allowed_cores();

}  // namespace tandem
