// The file of the program that runs.
#pragma once

#include <filesystem>

namespace tandem {

// A path that leads to it: /proc/self/exe, or, where /proc is not mounted, the path that it was
// started by, which may be relative. Empty where neither is known.
std::filesystem::path own_program();

}  // namespace tandem
