// Whether a checkpoint can be resumed as it was written: its files against manifest.json, and the
// form of what a resumed run reads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tandem::trainer {

// The fault of a checkpoint's file or manifest: a sentence without an end that names the file;
// empty if all can be read. A file is damaged if it differs from the manifest, is not a regular
// file (a directory, FIFO, socket or device: none of them is opened), cannot be opened, or if a
// resumed run could not read it (truncated, empty). A checkpoint without a manifest (Hugging Face's
// have none) is checked for its form only. Reads everything. Throws VolumeGone.
std::optional<std::string> find_damage(const std::filesystem::path& directory);

// Throws DataError when find_damage() finds something.
void require_undamaged(const std::filesystem::path& directory);

}  // namespace tandem::trainer
