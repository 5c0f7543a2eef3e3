// Unpredictable numbers, for secrets and names.
#pragma once

#include <cstdint>

namespace tandem {

// 64 bits of the system's generator (getrandom(2)). Any thread. Throws IoError.
std::uint64_t random_bits();

}  // namespace tandem
