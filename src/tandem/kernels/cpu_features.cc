#include "tandem/kernels/cpu_features.h"

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/core/env.h"
#include "tandem/core/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tandem::kernels {
namespace {

#if defined(__x86_64__)
struct Cpuid {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zeros when the processor does not know the leaf.
Cpuid cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  Cpuid r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool bit(std::uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

// XCR0: which register files the operating system saves and restores.
std::uint64_t enabled_state(const Cpuid& leaf1) {
  constexpr int kOsXsave = 27;
  if (!bit(leaf1.ecx, kOsXsave)) return 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

constexpr bool covers(std::uint64_t state, std::uint64_t wanted) {
  return (state & wanted) == wanted;
}

// Linux lets a process use the tiles, 8 KB more state per thread, only on request (5.16 and later;
// Documentation/arch/x86/xstate.rst). Returns why it does not, or nothing.
std::string_view request_tile_permission() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return {};
  switch (errno) {
    case EINVAL:
    case EOPNOTSUPP:
      return "this Linux kernel does not know AMX (it needs 5.16 or later)";
    case ENOSPC:
      return "Linux refuses AMX because the signal stack of a thread is too small for its state";
    default:
      return "Linux refuses the permission to use AMX (arch_prctl, ARCH_REQ_XCOMP_PERM)";
  }
#else
  return {};
#endif
}
#endif

}  // namespace

CpuFeatures CpuFeatures::of_processor() {
  CpuFeatures features;
#if defined(__x86_64__)
  const Cpuid leaf1 = cpuid(1, 0);
  const Cpuid leaf7 = cpuid(7, 0);
  const std::uint64_t state = enabled_state(leaf1);
  constexpr std::uint64_t kYmm = 0x6;
  constexpr std::uint64_t kZmm = 0xE6;
  constexpr std::uint64_t kTiles = 0x60000;
  features.avx2 =
      covers(state, kYmm) && bit(leaf1.ecx, 12) && bit(leaf1.ecx, 29) && bit(leaf7.ebx, 5);
  features.avx512 = features.avx2 && covers(state, kZmm) && bit(leaf7.ebx, 16) &&
                    bit(leaf7.ebx, 17) && bit(leaf7.ebx, 30) && bit(leaf7.ebx, 31);
  features.avx512_bf16 = features.avx512 && bit(cpuid(7, 1).eax, 5);
  features.avx512_vnni = features.avx512 && bit(leaf7.ecx, 11);
  if (features.avx512 && bit(leaf7.edx, 24) && bit(leaf7.edx, 22)) {
    features.amx_obstacle = covers(state, kTiles)
                                ? request_tile_permission()
                                : "the operating system does not enable this CPU's AMX";
    features.amx_bf16 = features.amx_obstacle.empty();
    features.amx_int8 = features.amx_bf16 && features.avx512_vnni && bit(leaf7.edx, 25);
  }
#endif
  return features;
}

namespace {

// A name of TANDEM_CPU_FEATURES, another one for it, and what a CPU with it has.
struct NamedFeatures {
  std::string_view name;
  std::string_view other_name;
  CpuFeatures features;
};

constexpr NamedFeatures kNamed[] = {
    {"none", "reference", {}},
    {"avx2", "", {.avx2 = true}},
    {"avx512", "", {.avx2 = true, .avx512 = true}},
    {"avx512_vnni", "avx512vnni", {.avx2 = true, .avx512 = true, .avx512_vnni = true}},
    {"avx512_bf16", "avx512bf16", {.avx2 = true, .avx512 = true, .avx512_bf16 = true}},
    {"amx_bf16", "amx", {.avx2 = true, .avx512 = true, .amx_bf16 = true}},
    {"amx_int8", "", {.avx2 = true, .avx512 = true, .avx512_vnni = true, .amx_int8 = true}},
};

const CpuFeatures& features_named(std::string_view name) {
  std::string names;
  for (const NamedFeatures& row : kNamed) {
    if (row.name == name || (!name.empty() && row.other_name == name)) return row.features;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  raise<ConfigError>("TANDEM_CPU_FEATURES: there is no feature '{}'; there are {}", name, names);
}

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

CpuFeatures CpuFeatures::detect() {
  const CpuFeatures features = machine_features();
  const auto names = Environment::from_process().get("TANDEM_CPU_FEATURES");
  return names ? features.limited_to(*names) : features;
}

CpuFeatures CpuFeatures::limited_to(std::string_view names) const {
  CpuFeatures kept;
  for (bool more = true; more;) {
    const std::size_t comma = names.find(',');
    const std::string_view name = trim(names.substr(0, comma));
    more = comma != std::string_view::npos;
    if (more) names.remove_prefix(comma + 1);
    const CpuFeatures& wanted = features_named(name);
    for (const auto flag : kCpuFlags) {
      if (wanted.*flag && !(this->*flag)) {
        raise<ConfigError>(
            "TANDEM_CPU_FEATURES asks for {}, which this CPU does not have{}{}; found: {}", name,
            amx_obstacle.empty() ? "" : ": ", amx_obstacle, describe());
      }
      kept.*flag = kept.*flag || wanted.*flag;
    }
  }
  if (amx_bf16 && !kept.amx_bf16) kept.amx_obstacle = "TANDEM_CPU_FEATURES hides this CPU's AMX";
  return kept;
}

std::string CpuFeatures::describe() const {
  std::string text;
  const auto add = [&](bool present, std::string_view name) {
    if (!present) return;
    if (!text.empty()) text += ", ";
    text += name;
  };
  add(avx2, "AVX2");
  add(avx512, "AVX-512");
  add(avx512_bf16, "AVX512_BF16");
  add(avx512_vnni, "AVX512_VNNI");
  add(amx_bf16, "AMX-BF16");
  add(amx_int8, "AMX-INT8");
  return text.empty() ? "no vector extension that tandem uses" : text;
}

}  // namespace tandem::kernels
