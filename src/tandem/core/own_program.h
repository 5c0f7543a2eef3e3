// The file of the running program.
//
// In the portable archive (packaging/launcher.c) `bin/tandem` starts the archive's dynamic
// loader, which loads `lib/tandem/tandem`. There the kernel knows the process by its loader.
#pragma once

#include <filesystem>

namespace tandem {

// A path that starts the program again: /proc/self/exe; the launcher of a portable archive; without
// /proc the path that the kernel was given, which may be relative. Empty if none exists.
std::filesystem::path own_program();

// The file that holds the program's code, which differs between builds. Empty if unknown.
std::filesystem::path own_binary();

// Shows the process as `tandem` in ps and top where the kernel would show the loader's name.
void name_own_process();

}  // namespace tandem
