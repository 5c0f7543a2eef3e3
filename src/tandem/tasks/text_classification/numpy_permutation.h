// The order in which run_classification shuffles its rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::text_classification {

// numpy.random.default_rng(seed).permutation(count): PCG64 (O'Neill 2014, XSL-RR 128/64) seeded by
// SeedSequence, and Fisher-Yates with numbers that are masked and rejected. `count` below 2^32.
std::vector<std::uint32_t> numpy_permutation(std::size_t count, std::uint64_t seed);

}  // namespace tandem::text_classification
