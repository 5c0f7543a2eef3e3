// Which sequences share a sample with --packing: best-fit decreasing, as TRL's pack_dataset().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::supervised {

// The samples of some sequences, each a list of their indices, with at most `most` tokens. Lengths
// are in [1, most]. The longest sequences come first, equal ones in order. Each goes into the
// sample with the least room that is enough for it, or into a new one.
std::vector<std::vector<std::uint32_t>> pack(std::span<const std::size_t> lengths,
                                             std::size_t most);

}  // namespace tandem::supervised
