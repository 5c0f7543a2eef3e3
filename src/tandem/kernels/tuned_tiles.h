// Tiles of products that `tandem bench tune` measured, kept in a file per kind of CPU:
// $XDG_CACHE_HOME/tandem/gemm-tiles-CPU.json, else ~/.cache/tandem/… . They change no bit of a
// result, so a job runs the same with, without, or with another machine's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tandem/core/env.h"
#include "tandem/kernels/kernel_set.h"

namespace tandem::kernels {

// Where the tiles of this machine's CPU are. Nothing when the environment names no home.
std::optional<std::filesystem::path> tuned_tiles_file(const Environment& environment);

// Writes the tiles of `kernels`. Throws IoError.
void save_tuned_tiles(const std::filesystem::path& file, const KernelSet& kernels);

// Sets the tiles of `kernels` to those of the file. Returns one line for the person: the file that
// is used, or the reason why an existing file is not used; empty without a file. Never throws for
// what the file holds.
std::string load_tuned_tiles(const Environment& environment, KernelSet& kernels);

}  // namespace tandem::kernels
