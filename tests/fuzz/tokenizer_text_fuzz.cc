// Texts through the demo's tokenizer, whose vocabulary holds every kind of entry: the ids are of
// the vocabulary, the offsets ascend inside of the text, and a thread's memory of earlier texts
// changes nothing.
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/text/tokenizer.h"
#include "tandem/text/utf8.h"

using namespace tandem;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const text::Tokenizer tokenizer = text::Tokenizer::load(
      std::filesystem::path(TANDEM_SOURCE_DIR) / "examples" / "demo" / "model");
  static text::Encoding reused;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  text::Encoding fresh;
  try {
    tokenizer.encode(text, fresh);
    tokenizer.encode(text, reused);
  } catch (const DataError&) {
    fuzz::require(text::find_invalid_utf8(text).has_value());
    return 0;
  }
  fuzz::require(!text::find_invalid_utf8(text));
  fuzz::require(fresh.ids == reused.ids && fresh.offsets == reused.offsets);
  fuzz::require(fresh.ids.size() == fresh.offsets.size());
  const std::size_t length = text::count_code_points(text);
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < fresh.ids.size(); ++i) {
    fuzz::require(fresh.ids[i] >= 0 &&
                  static_cast<std::size_t>(fresh.ids[i]) < tokenizer.vocab_size());
    fuzz::require(fresh.offsets[i].begin >= last &&
                  fresh.offsets[i].begin <= fresh.offsets[i].end && fresh.offsets[i].end <= length);
    last = fresh.offsets[i].begin;
  }
  return 0;
}
