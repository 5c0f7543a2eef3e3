// The rules of the staging ring, as pure functions: the code that moves bytes and the test that
// tries every interleaving of a small model share them.
//
// A large operation is cut into bands. For each band a rank
//   stages     copies what others need of it into its ring slot (band mod depth), posts "staged"
//   consumes   when the others have staged the band: reduces or copies out of their slots; where
//              the result is for all, it writes it to its own slot and posts "reduced"
//   collects   (only where results are for all) when the others have reduced the band: copies their
//              results
// and after the last of these posts "consumed". Counters never go back and continue from operation
// to operation.
#pragma once

#include <cstdint>

namespace tandem::comm::staging {

// The slot of `band` was used `depth` bands ago. A rank that reads from this one in the present
// operation must have consumed that band; one that does not must only have left the operations
// before, which end at band `base`. The value that its "consumed" counter must have reached:
constexpr std::uint32_t consumed_before_staging(std::uint32_t base, std::uint32_t band,
                                                std::uint32_t depth, bool reads_from_us) {
  const std::uint32_t needed = band + 1 - depth;  // may be "negative": compared modulo 2^32
  if (reads_from_us) return needed;
  return static_cast<std::int32_t>(needed - base) < 0 ? needed : base;
}

// "staged" or "reduced" that says that `band` is there.
constexpr std::uint32_t count_with(std::uint32_t band) { return band + 1; }

// The steps that a rank takes next; each may wait while the others move on.
struct Cursor {
  std::uint32_t staged = 0;  // bands of this operation
  std::uint32_t consumed = 0;
  std::uint32_t collected = 0;

  bool may_stage(std::uint32_t bands) const { return staged < bands; }
  bool may_consume() const { return consumed < staged; }
  bool may_collect() const { return collected < consumed; }
  bool done(std::uint32_t bands) const { return collected == bands; }
};

}  // namespace tandem::comm::staging
