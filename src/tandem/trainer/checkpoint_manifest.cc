#include "tandem/trainer/checkpoint_manifest.h"

#include <fmt/ranges.h>
#include <zlib.h>

#include <set>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/volume.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnFile = "tandem_state.json";  // only tandem's checkpoints have it

// Read in pieces: a mapped file would count as memory of the job, as large as the checkpoint.
FileSum sum_of(const fs::path& path) {
  std::vector<std::byte> piece(std::size_t{1} << 18);
  uLong crc = 0;
  std::uint64_t bytes = 0;
  read_in_pieces(path, piece, [&](std::span<const std::byte> part) {
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
    bytes += part.size();
  });
  return {bytes, fmt::format("{:08x}", crc)};
}

std::optional<std::string> damage_of(const fs::path& path, const FileSum& written) {
  if (!is_there(path)) return fmt::format("'{}' is missing", path.native());
  if (!fs::is_regular_file(path)) {
    return fmt::format("'{}' is damaged: it is not a regular file, {} bytes were written",
                       path.native(), written.bytes);
  }
  const FileSum found = sum_of(path);
  if (found.bytes != written.bytes) {
    return fmt::format("'{}' is damaged: it has {} bytes, {} were written", path.native(),
                       found.bytes, written.bytes);
  }
  if (found.crc32 != written.crc32) {
    return fmt::format("'{}' is damaged: its CRC-32 is {}, that of what was written {}",
                       path.native(), found.crc32, written.crc32);
  }
  return std::nullopt;
}

// Whether `name` can be an entry of the directory itself: the manifest may be damaged. The system
// takes a name up to its first zero byte.
bool is_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

bool is_crc32(std::string_view text) {
  return text.size() == 8 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<FileSum> sum_in(const nlohmann::json& entry) {
  const auto member = [&](const char* name) {
    return entry.is_object() ? entry.find(name) : entry.end();
  };
  const auto bytes = member("bytes"), crc32 = member("crc32");
  if (bytes == entry.end() || crc32 == entry.end() || !bytes->is_number_unsigned() ||
      !crc32->is_string() || !is_crc32(crc32->get_ref<const std::string&>())) {
    return std::nullopt;
  }
  return FileSum{bytes->get<std::uint64_t>(), crc32->get<std::string>()};
}

}  // namespace

bool is_read_on_resuming(std::string_view name) {
  return name == kOwnFile || name == "trainer_state.json" || name == "optimizer.pt" ||
         name.ends_with(".safetensors") || name.ends_with(".index.json") ||
         name.starts_with("pytorch_model");
}

std::optional<Manifest> parse_manifest(std::string_view text) {
  const auto json = try_parse_json(text);
  if (!json.is_object() || !json.contains("files") || !json["files"].is_object())
    return std::nullopt;
  Manifest files;
  for (const auto& [name, entry] : json["files"].items()) {
    auto sum = sum_in(entry);
    if (!sum || !is_name(name)) return std::nullopt;
    files.emplace(name, std::move(*sum));
  }
  return files;
}

std::string to_json(const Manifest& manifest) {
  auto files = nlohmann::json::object();
  for (const auto& [name, sum] : manifest)
    files[name] = {{"bytes", sum.bytes}, {"crc32", sum.crc32}};
  nlohmann::ordered_json json;
  json["files"] = std::move(files);
  return python_json(json, {.indent = 2, .sort_keys = true}) + "\n";
}

void write_manifest(const fs::path& directory) {
  Manifest files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file()) files[entry.path().filename().string()] = sum_of(entry.path());
  }
  write_file(directory / kManifestFile, to_json(files));
}

std::optional<std::string> find_change(const fs::path& directory) {
  const fs::path manifest = directory / kManifestFile;
  const auto text = read_file_if_exists(manifest);
  if (!text) return std::nullopt;
  const auto files = parse_manifest(*text);
  if (!files) return fmt::format("'{}' is damaged: it is not a list of files", manifest.native());
  for (const auto& [name, sum] : *files) {
    if (auto damage = damage_of(directory / name, sum)) return damage;
  }
  return std::nullopt;
}

std::optional<std::string> find_unchecked(const fs::path& directory) {
  if (!is_there(directory / kOwnFile)) return std::nullopt;
  const auto text = read_file_if_exists(directory / kManifestFile);
  if (!text) {
    return fmt::format("'{}' has no {}, with which every checkpoint is written", directory.native(),
                       kManifestFile);
  }
  const auto files = parse_manifest(*text);
  std::set<std::string> unlisted;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (is_read_on_resuming(name) && !(files && files->contains(name))) unlisted.insert(name);
  }
  if (unlisted.empty()) return std::nullopt;
  return fmt::format("'{}' does not list {}", (directory / kManifestFile).native(),
                     fmt::join(unlisted, ", "));
}

}  // namespace tandem::trainer
