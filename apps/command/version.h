// Which build this program is, for `tandem --version` and `tandem doctor`.
#pragma once

#include <string>
#include <string_view>

namespace tandem::apps {

// "0.1.0".
std::string_view program_version();
// "1f0e2d3c4b5a built by GNU 12.2.0 (Release)".
std::string build_text();
// "AVX2, AVX-512; gemm=avx512,attention=avx512,…": what this CPU has and what runs on it.
std::string kernels_text();
// The lines of `tandem --version`. The first one is "tandem 0.1.0", which doctor compares.
std::string version_text();

}  // namespace tandem::apps
