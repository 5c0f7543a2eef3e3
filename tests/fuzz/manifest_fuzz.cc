// manifest.json of a checkpoint. An accepted manifest names entries of the checkpoint's own
// directory, has well-formed checksums, can be written and reads back as itself.
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/trainer/checkpoint_manifest.h"

namespace {

using namespace tandem;

void check_name(const std::string& name) {
  const std::filesystem::path path =
      (std::filesystem::path("/checkpoint") / name.c_str()).lexically_normal();
  fuzz::require(path.parent_path() == "/checkpoint" && path.filename() == name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // An empty object of JSON takes 35 bytes for each of its text; names and sums are kept once more.
  const fuzz::MemoryLimit limit(64 * size + 65536);
  const auto manifest = trainer::parse_manifest(text);
  if (!manifest) return 0;
  for (const auto& [name, sum] : *manifest) {
    check_name(name);
    fuzz::require(sum.crc32.size() == 8 &&
                  sum.crc32.find_first_not_of("0123456789abcdef") == std::string::npos);
  }
  fuzz::require(trainer::parse_manifest(trainer::to_json(*manifest)) == *manifest);
  return 0;
}
