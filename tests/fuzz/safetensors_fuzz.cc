// The header of safetensors files. What is accepted must hold what it promises: views inside the
// file, of the size of their shapes.
#include <cstdint>

#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/models/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  try {
    const models::SafetensorsContent content(std::as_bytes(std::span(data, size)), "input");
    for (const models::TensorView& tensor : content.tensors()) {
      fuzz::require(models::byte_size(tensor.dtype, tensor.shape) == tensor.bytes.size());
      unsigned sum = 0;
      for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
      fuzz::require(sum <= 255u * size);
    }
  } catch (const DataError&) {
  }
  return 0;
}
