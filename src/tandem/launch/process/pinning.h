// Variables of other launchers and runtimes that concern cores, and their effect here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/process/placement.h"

namespace tandem::launch {

// The value of a variable, or nothing if it is unset or empty.
using VariableLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Sets the fields of `request`, whose nproc and own_job must be set, from these variables:
//   OMP_NUM_THREADS, CCL_WORKER_COUNT    threads, and cores that are left to communication
//   CCL_WORKER_AFFINITY                  CPUs of communication: no worker computes there
//   I_MPI_PIN, OMP_PROC_BIND, KMP_AFFINITY   off, false, none: no worker is bound
//   I_MPI_PIN_DOMAIN                     Intel MPI's domains: core, socket, numa, node, cache, omp,
//                                        auto, a size with :compact, :platform or :scatter, or
//                                        [masks]; workers are spread over them in order
// Returns a line for each variable of placement that is set: its effect, or the reason why it has
// none. Throws ConfigError for invalid values.
std::vector<std::string> apply_pin_variables(const VariableLookup& get, const Machine& machine,
                                             PlacementRequest& request);

// The CPUs of each domain.
std::vector<std::vector<int>> cpus_of(const std::vector<Domain>& domains);

// The domains of the machine for a value of I_MPI_PIN_DOMAIN. `threads`: OMP_NUM_THREADS; `count`:
// workers. Throws ConfigError.
std::vector<std::vector<int>> pin_domains(const Machine& machine, const std::string& value,
                                          std::optional<int> threads, int count);

}  // namespace tandem::launch
