// trainer_state.json of a checkpoint, ours or another program's. What is accepted can be written
// and reads back as itself.
#include <cstdint>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/trainer/trainer_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The log is written with two blanks for each level, of which there are 64 at most: a number of
  // two bytes becomes a line of 130, in a text that doubles while it grows; and there are two.
  const fuzz::MemoryLimit limit(512 * size + (std::size_t{128} << 10));
  try {
    const std::string written = trainer::TrainerState::parse(text, "input").to_json();
    fuzz::require(trainer::TrainerState::parse(written, "written").to_json() == written);
  } catch (const DataError&) {
  }
  return 0;
}
