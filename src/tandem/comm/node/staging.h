// The rules of the staging ring, as pure functions: shared by the code that moves bytes and the
// test that tries every interleaving of a small model.
//
// A large operation is cut into bands. For each band a rank
//   stages     copies the data that others need into its ring slot (band mod depth), posts "staged"
//   consumes   when the others have staged the band: reduces or copies out of their slots; if all
//              ranks need the result, writes it to its own slot and posts "reduced"
//   collects   (only if all ranks need the results) when the others have reduced the band: copies
//              their results
// and after the last of these posts "consumed". Counters never decrease and continue from operation
// to operation.
#pragma once

#include <cstdint>

namespace tandem::comm::staging {

// The slot of `band` was used `depth` bands ago. A rank that reads from this one in the present
// operation must have consumed that band; any other rank must only have left the previous
// operations, which end at band `base`. Returns the value that the rank's "consumed" counter must
// have reached.
constexpr std::uint32_t consumed_before_staging(std::uint32_t base, std::uint32_t band,
                                                std::uint32_t depth, bool reads_from_us) {
  const std::uint32_t needed = band + 1 - depth;  // may be "negative": compared modulo 2^32
  if (reads_from_us) return needed;
  return static_cast<std::int32_t>(needed - base) < 0 ? needed : base;
}

// The value of "staged" or "reduced" at which `band` is available.
constexpr std::uint32_t count_with(std::uint32_t band) { return band + 1; }

// The next steps of a rank; each may wait while the others continue.
struct Cursor {
  std::uint32_t staged = 0;  // in bands of this operation
  std::uint32_t consumed = 0;
  std::uint32_t collected = 0;

  bool may_stage(std::uint32_t bands) const { return staged < bands; }
  bool may_consume() const { return consumed < staged; }
  bool may_collect() const { return collected < consumed; }
  bool done(std::uint32_t bands) const { return collected == bands; }
};

}  // namespace tandem::comm::staging
