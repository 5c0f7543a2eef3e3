// tandem_state.json of a checkpoint. An accepted state is one that a run can have, can be written
// and reads back as itself.
#include <cstdint>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/trainer/resume_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // An empty object of JSON takes 35 bytes for each of its text; little of it is kept.
  const fuzz::MemoryLimit limit(64 * size + 65536);
  try {
    const auto state = trainer::ResumeState::parse(text, "input");
    fuzz::require(state.logical_shards > 0 && state.per_device_train_batch_size > 0 &&
                  state.gradient_accumulation_steps > 0 && state.last_log_step >= 0 &&
                  state.num_features >= 0 && state.repeated_updates >= 0);
    fuzz::require(state.shard_loss_since_log.size() ==
                  static_cast<std::size_t>(state.logical_shards));
    const std::string written = state.to_json();
    fuzz::require(trainer::ResumeState::parse(written, "written").to_json() == written);
  } catch (const DataError&) {
  }
  return 0;
}
