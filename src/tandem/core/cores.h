// Which cores this process may run on.
#pragma once

#include <optional>
#include <vector>

namespace tandem {

// CPU numbers in ascending order, one for each physical core of the affinity mask: hardware threads
// of one core count once.
std::vector<int> allowed_cores();

// CPUs' worth of time that this process's control group and those above it allow, the least of them
// (cgroup v1 and v2); nothing without a quota.
std::optional<double> cgroup_cpu_quota();

}  // namespace tandem
