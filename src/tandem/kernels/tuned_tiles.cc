#include "tandem/kernels/tuned_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <string_view>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::kernels {
namespace {

using nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::size_t kLargest = 4096;  // rows or columns of a tile

// "amd-epyc-9755-26-2-1": the first processor's name, family, model and stepping, as Linux has
// them.
std::string cpu_name() {
  const std::optional<std::string> text = read_file_if_exists("/proc/cpuinfo");
  std::string name;
  for (const std::string_view key : {"model name", "cpu family", "model\t", "stepping"}) {
    const std::size_t at = text ? text->find(key) : std::string::npos;
    if (at == std::string::npos) continue;
    const std::size_t colon = std::min(text->find(':', at), text->size());
    const std::size_t end = std::min(text->find('\n', at), text->size());
    for (std::size_t i = colon; i < end; ++i) {
      const auto c = static_cast<unsigned char>((*text)[i]);
      if (std::isalnum(c) != 0) {
        name += static_cast<char>(std::tolower(c));
      } else if (!name.empty() && name.back() != '-') {
        name += '-';
      }
    }
  }
  return name.empty() ? "unknown" : name;
}

ordered_json to_json(const GemmTiles& tiles) {
  return {{"b_ahead", {tiles.b_ahead.rows, tiles.b_ahead.columns}},
          {"b_staged", {tiles.b_staged.rows, tiles.b_staged.columns}}};
}

GemmTile tile_from(const ordered_json& json, const char* key) {
  const auto sizes = json.at(key).get<std::vector<std::size_t>>();
  if (sizes.size() != 2 || sizes[0] > kLargest || sizes[1] > kLargest) {
    raise<DataError>("{} is {}; expected rows and columns, 0 to {} each", key, json.at(key).dump(),
                     kLargest);
  }
  return {sizes[0], sizes[1]};
}

GemmTiles tiles_from(const ordered_json& json) {
  return {.b_ahead = tile_from(json, "b_ahead"), .b_staged = tile_from(json, "b_staged")};
}

template <class Value>
void check(const char* key, const Value& found, const Value& expected) {
  if (found != expected) raise<DataError>("{} is {}; this is {}", key, found, expected);
}

void set_tiles(const ordered_json& json, KernelSet& kernels) {
  check("format", json.at("format").get<int>(), kFormat);
  check("cpu", json.at("cpu").get<std::string>(), cpu_name());
  check("gemm", json.at("gemm").get<std::string>(), std::string(kernels.implementation("gemm")));
  const GemmTiles f32 = tiles_from(json.at("f32"));
  kernels.gemm_tiles_bf16 = tiles_from(json.at("bf16"));
  kernels.gemm_tiles_f32 = f32;
}

}  // namespace

std::optional<std::filesystem::path> tuned_tiles_file(const Environment& environment) {
  std::filesystem::path cache;
  if (const auto root = environment.get("XDG_CACHE_HOME")) {
    cache = *root;
  } else if (const auto home = environment.get("HOME")) {
    cache = std::filesystem::path(*home) / ".cache";
  } else {
    return std::nullopt;
  }
  return cache / "tandem" / fmt::format("gemm-tiles-{}.json", cpu_name());
}

void save_tuned_tiles(const std::filesystem::path& file, const KernelSet& kernels) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) raise<IoError>("{}: {}", file.parent_path().string(), error.message());
  const ordered_json json = {{"format", kFormat},
                             {"cpu", cpu_name()},
                             {"gemm", kernels.implementation("gemm")},
                             {"f32", to_json(kernels.gemm_tiles_f32)},
                             {"bf16", to_json(kernels.gemm_tiles_bf16)}};
  write_file(file, json.dump(2) + "\n");
}

std::string load_tuned_tiles(const Environment& environment, KernelSet& kernels) {
  const std::optional<std::filesystem::path> file = tuned_tiles_file(environment);
  if (!file) return {};
  try {
    const std::optional<std::string> text = read_file_if_exists(*file);
    if (!text) return {};
    set_tiles(parse_ordered_json(*text), kernels);
    return fmt::format("tiles of products: {}", file->string());
  } catch (const std::exception& error) {
    return fmt::format(
        "tiles of products: the kernels' own; {} is not used ({}). `kernel_bench tune` "
        "writes it again",
        file->string(), json_reason(error.what()));
  }
}

}  // namespace tandem::kernels
