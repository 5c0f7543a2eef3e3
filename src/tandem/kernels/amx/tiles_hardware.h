// Internal: AMX's tiles (interface: amx/tile_config.h). Include it only from sources compiled with
// AMX. A tile belongs to the thread that configured it; the process must have the operating
// system's permission (CpuFeatures::detect() asks for it).
//
// Inline assembly, not intrinsics: GCC's are macros that paste the register's number, so it cannot
// be a template argument, and they do not declare that a tile load reads memory.
#pragma once

#include <cstddef>

#include "tandem/kernels/amx/tile_config.h"

namespace tandem::kernels::amx {

class Tiles {
 public:
  [[gnu::always_inline]] explicit Tiles(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  [[gnu::always_inline]] ~Tiles() { __asm__ volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kTile>
  [[gnu::always_inline]] void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  [[gnu::always_inline]] void load(const void* p, std::size_t stride_bytes) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(p), "r"(stride_bytes), "i"(kTile)
                     : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] void load_once(const void* p, std::size_t stride_bytes) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(p), "r"(stride_bytes), "i"(kTile)
                     : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] void store(void* p, std::size_t stride_bytes) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(p), "r"(stride_bytes), "i"(kTile)
                     : "memory");
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] void dot() {
    static_assert(kSum != kA && kSum != kB && kA != kB);
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] void dot_bytes() {
    static_assert(kSum != kA && kSum != kB && kA != kB);
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace tandem::kernels::amx
