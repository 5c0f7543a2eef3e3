// manifest.json of a checkpoint: size and CRC-32 of every other file in it, so that a bit that a
// disk or a copy turned is noticed before a run resumes from it.
//
//   {"files": {"config.json": {"bytes": 612, "crc32": "1b0f34a2"}, …}}
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::trainer {

struct FileSum {
  std::uint64_t bytes = 0;
  std::string crc32;  // 8 hexadecimal digits, small letters
  friend bool operator==(const FileSum&, const FileSum&) = default;
};
// By name, which is that of an entry of the checkpoint's directory.
using Manifest = std::map<std::string, FileSum>;

// Nothing if the text is not a manifest. A parsed manifest can be written, and reads back as
// itself.
std::optional<Manifest> parse_manifest(std::string_view text);
std::string to_json(const Manifest& manifest);

// Writes the manifest of the files that are in `directory` now. Throws IoError.
void write_manifest(const std::filesystem::path& directory);

inline constexpr std::string_view kManifestFile = "manifest.json";

// Whether a resumed run reads the file of this name: state, weights, optimizer. Weights may be of
// several files with an index.
bool is_read_on_resuming(std::string_view name);

// How a file of the checkpoint differs from the manifest, or what is wrong with the
// manifest: a sentence without an end that names the file; nothing when all is as it was written,
// or when there is no manifest (Hugging Face's checkpoints have none). Files that the manifest does
// not list are not looked at. Reads everything. Throws IoError.
std::optional<std::string> find_change(const std::filesystem::path& directory);

// Why find_change() cannot check a checkpoint of tandem's, which are all written with a manifest:
// the manifest is missing, or does not list some of the files from which a run resumes. A sentence
// without an end; nothing when all are listed, or when the checkpoint is Hugging Face's.
std::optional<std::string> find_unchecked(const std::filesystem::path& directory);

}  // namespace tandem::trainer
