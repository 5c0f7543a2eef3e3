// The header of safetensors files; for an input that begins as its text does, the file is made
// here. Accepted input must hold its promises: views inside the file, of the size of their shapes.
#include <cstdint>
#include <cstring>
#include <string>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/formats/safetensors.h"

namespace {

std::string file_of(std::string_view input) {
  if (!input.starts_with("{\"")) return std::string(input);
  const std::uint64_t size = input.size();
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  return file.append(input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  const std::string file = file_of({reinterpret_cast<const char*>(data), size});
  // An empty object of JSON takes 35 bytes for each of its text, a tensor not half as much; one
  // tree is there at a time.
  const fuzz::MemoryLimit limit(64 * size + 65536);
  try {
    const formats::SafetensorsContent content(std::as_bytes(std::span(file)), "input");
    for (const formats::TensorView& tensor : content.tensors()) {
      fuzz::require(formats::byte_size(tensor.dtype, tensor.shape) == tensor.bytes.size());
      unsigned sum = 0;
      for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
      fuzz::require(sum <= 255u * size);
    }
  } catch (const DataError&) {
  }
  return 0;
}
