// A file of features, as an attacker could leave it in a cache. Size and checksum at its end are
// made right, so that mutations get further: they protect from accidents only.
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/memory.h"
#include "tandem/core/error.h"
#include "tandem/tasks/feature_file.h"

namespace {

using namespace tandem;
using namespace tandem::tasks;

// From the end of the file.
constexpr std::size_t kSizeAt = 32;
constexpr std::size_t kChecksumAt = 8;

void seal(std::string& file) {
  if (file.size() < kSizeAt) return;
  const std::uint64_t size = file.size();
  std::memcpy(file.data() + size - kSizeAt, &size, sizeof(size));
  const std::uint64_t sum =
      crc32(0, reinterpret_cast<const Bytef*>(file.data()), static_cast<uInt>(size - kChecksumAt));
  std::memcpy(file.data() + size - kChecksumAt, &sum, sizeof(sum));
}

// Reads the fields as the tasks do: an array, texts, a number, an array again; and every byte of
// them.
std::uint64_t sum_of(std::string_view file) {
  const FieldBytes bytes = std::as_bytes(std::span(file));
  FeatureFields fields = FeatureFields::parse(bytes, nullptr, "key", "input");
  StoredArray<std::int32_t> first;
  std::vector<std::string> texts;
  std::uint64_t sum = 0;
  StoredArray<std::uint16_t> last;
  fields.take(first);
  fields.take(texts);
  fields.take(sum);
  fields.take(last);
  for (const std::int32_t value : first.view()) sum += static_cast<std::uint64_t>(value);
  for (const std::uint16_t value : last.view()) sum += value;
  for (const std::string& text : texts) sum += text.size();
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  seal(file);
  // A text of one byte takes a string, and a list that grows is there twice.
  const fuzz::MemoryLimit limit(100 * size + 10'000);
  try {
    [[maybe_unused]] const volatile std::uint64_t sum = sum_of(file);
  } catch (const DataError&) {
  }
  return 0;
}
