// Machine profiles: JSON files, and a short measurement that makes one.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "apps/bench/random_batch.h"
#include "apps/plan/cost_model.h"
#include "tandem/core/env.h"
#include "tandem/models/encoder/model_config.h"

namespace tandem::apps::plan {

// {"peak_gflops", "share_of_peak", "memory_gbytes_per_second", "reduce_gbytes_per_second"} of a
// rank, and "message_microseconds" if it is not the default. Throws ConfigError, naming `where`,
// for broken JSON and for a key that is missing, unknown or out of range.
MachineProfile parse_profile(std::string_view json, std::string_view where);
nlohmann::ordered_json to_json(MachineProfile profile);

struct Measurement {
  models::ModelConfig config;
  bool bf16 = false;
  std::vector<std::uint32_t> lengths;  // lengths of a rank's batch
  bench::Head head = bench::Head::kSpans;
  int ranks = 1;    // at work at the same time
  int threads = 1;  // threads of each rank
  int rounds = 5;
};

// Trains some steps in `ranks` ranks at once, which do not exchange anything, with the calibrators
// of the benches between them; medians over steps and ranks. Each rank needs the memory of a job of
// its own. Takes about rounds + 1 steps. Throws what the benches throw.
MachineProfile measure_profile(const Measurement& measurement, const Environment& environment);

}  // namespace tandem::apps::plan
