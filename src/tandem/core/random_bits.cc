#include "tandem/core/random_bits.h"

#include <sys/random.h>

#include <cerrno>

#include "tandem/core/error.h"

namespace tandem {

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits)
    throw io_error("cannot read", "getrandom", errno);
  return bits;
}

}  // namespace tandem
