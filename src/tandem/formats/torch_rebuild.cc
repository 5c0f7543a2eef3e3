#include "tandem/formats/torch_rebuild.h"

#include <algorithm>
#include <array>

#include "tandem/core/error.h"
#include "tandem/formats/torch_names.h"

namespace tandem::formats {
namespace {

constexpr std::size_t kMaxDimensions = 64;

std::vector<std::size_t> sizes(const TorchNode& node, const PickleError& error) {
  const auto* tuple = std::get_if<TorchList>(&node.value);
  if (tuple == nullptr || tuple->elements.size() > kMaxDimensions)
    error.damaged("a shape that is {}", type_name(node));
  std::vector<std::size_t> values;
  for (const TorchNode* element : tuple->elements) {
    const auto* value = std::get_if<std::int64_t>(&element->value);
    if (value == nullptr || *value < 0) error.damaged("a shape with {}", type_name(*element));
    values.push_back(static_cast<std::size_t>(*value));
  }
  return values;
}

// Dimensions of one element may have any stride, and so may a tensor without elements.
void check_contiguous(const std::vector<std::size_t>& shape,
                      const std::vector<std::size_t>& strides, const std::string& key,
                      const PickleError& error) {
  if (strides.size() != shape.size())
    error.damaged("{} strides for {} dimensions", strides.size(), shape.size());
  if (std::find(shape.begin(), shape.end(), std::size_t{0}) != shape.end()) return;
  std::size_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) {
      raise<DataError>(
          "{}: the tensor in storage {} has shape {} and strides {}; expected one whose elements "
          "lie one after another: save tensor.contiguous()",
          error.where, in_quotes(key), shape_to_string(shape), shape_to_string(strides));
    }
    if (__builtin_mul_overflow(expected, shape[i], &expected)) return;  // does not fit anyway
  }
}

}  // namespace

TorchStorage make_storage(const TorchNode& id, const FindStorage& find_storage,
                          const PickleError& error) {
  const auto* tuple = std::get_if<TorchList>(&id.value);
  if (tuple == nullptr || tuple->elements.size() != 5)
    error.damaged("an unknown kind of reference");
  const auto* kind = std::get_if<std::string_view>(&tuple->elements[0]->value);
  const auto* type = std::get_if<TorchGlobalName>(&tuple->elements[1]->value);
  const auto* key = std::get_if<std::string_view>(&tuple->elements[2]->value);
  const auto* count = std::get_if<std::int64_t>(&tuple->elements[4]->value);
  if (kind == nullptr || *kind != "storage" || type == nullptr ||
      type->global != TorchGlobal::kStorageType || key == nullptr || count == nullptr || *count < 0)
    error.damaged("an unknown kind of reference");
  const auto bytes = find_storage(*key);
  if (!bytes) raise<DataError>("{}: the storage {} is missing", error.where, in_quotes(*key));
  const std::array shape = {static_cast<std::size_t>(*count)};
  const auto expected = byte_size(type->dtype, shape);
  if (!expected || bytes->size() != *expected) {
    raise<DataError>("{}: the storage {} has {} bytes; expected {} elements of {}", error.where,
                     in_quotes(*key), bytes->size(), *count, to_string(type->dtype));
  }
  return {type->dtype, std::string(*key), *bytes};
}

TensorView rebuild_tensor(const std::vector<TorchNode*>& arguments, const PickleError& error) {
  if (arguments.size() < 4) error.damaged("a tensor of {} arguments", arguments.size());
  const auto* storage = std::get_if<TorchStorage>(&arguments[0]->value);
  const auto* offset = std::get_if<std::int64_t>(&arguments[1]->value);
  if (storage == nullptr || offset == nullptr || *offset < 0)
    error.damaged("a tensor without storage");
  TensorView tensor;
  tensor.dtype = storage->dtype;
  tensor.shape = sizes(*arguments[2], error);
  const auto bytes = byte_size(tensor.dtype, tensor.shape);
  check_contiguous(tensor.shape, sizes(*arguments[3], error), storage->key, error);
  std::size_t begin = 0;
  if (!bytes ||
      __builtin_mul_overflow(static_cast<std::size_t>(*offset), size_in_bytes(tensor.dtype),
                             &begin) ||
      begin > storage->bytes.size() || *bytes > storage->bytes.size() - begin) {
    raise<DataError>(
        "{}: a tensor of shape {} at element {} does not fit its storage {} of {} bytes",
        error.where, shape_to_string(tensor.shape), *offset, in_quotes(storage->key),
        storage->bytes.size());
  }
  tensor.bytes = storage->bytes.subspan(begin, *bytes);
  return tensor;
}

}  // namespace tandem::formats
