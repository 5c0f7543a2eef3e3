// Files of torch.save: the ZIP directory, the pickle, the tensors. An accepted file can be walked
// through, and every tensor lies inside it.
#include <cstdint>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/formats/torch_file.h"

namespace {

using namespace tandem;

std::size_t walk(const formats::TorchValue& value) {
  std::size_t sum = 1;
  if (value.is_tensor()) {
    const formats::TensorView& tensor = value.as_tensor();
    fuzz::require(formats::byte_size(tensor.dtype, tensor.shape) == tensor.bytes.size());
    for (const std::byte byte : tensor.bytes) sum += static_cast<std::size_t>(byte);
  } else if (value.is_dict()) {
    for (const auto& [key, entry] : value.items()) sum += walk(entry);
  } else if (value.is_list()) {
    for (const formats::TorchValue& element : value.elements()) sum += walk(element);
  } else if (value.is_object()) {
    sum += value.class_name().size();
    if (const auto attributes = value.attributes()) sum += walk(*attributes);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  // A pickled value of two bytes is an element of 32 in a list that grows; memory for tensors is
  // that of the file.
  const fuzz::MemoryLimit limit(128 * size + 65536);
  try {
    const formats::TorchContent content(bytes, "input", formats::PickledObjects::kDescribed);
    fuzz::require(walk(content.root()) > 0);
  } catch (const DataError&) {
  }
  try {
    const formats::TorchContent content(bytes, "input");
    fuzz::require(walk(content.root()) > 0);
    (void)formats::state_dict_tensors(content.root());
  } catch (const DataError&) {
  }
  return 0;
}
