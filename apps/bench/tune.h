// `tandem bench gemm --tune`: tiles of products for this machine.
#pragma once

#include <cstddef>
#include <string>

#include "apps/bench/session.h"

namespace tandem::apps::bench {

// Times the products of a model with tiles of several sizes alternately, per type and kind of
// product, and writes the sizes that are clearly faster than the kernel's own to the cache of
// kernels/tuned_tiles.h. Results with other bits than the kernel's own tiles give are an error. On
// a busy machine nothing is written. Returns the exit code: 70 wrong bits, 1 busy.
int tune_products(Session& session, const std::string& model, std::size_t rows,
                  const Environment& environment);

}  // namespace tandem::apps::bench
