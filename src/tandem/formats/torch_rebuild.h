// Tensors and their storages out of a pickle's arguments. For sources of this library.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/formats/torch_pickle.h"
#include "tandem/formats/torch_value.h"

namespace tandem::formats {

// Where in a pickle something is wrong.
struct PickleError {
  const std::string& where;  // the file
  std::size_t at;            // the byte

  template <class... Args>
  [[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) const {
    raise<DataError>("{}: damaged pickle at byte {}: {}", where, at,
                     fmt::format(format, std::forward<Args>(args)...));
  }
};

// The storage that the reference `id` names: ('storage', type, key, device, number of elements).
// Throws DataError, as the next one.
TorchStorage make_storage(const TorchNode& id, const FindStorage& find_storage,
                          const PickleError& error);

// _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks): the tensor's elements
// must lie one after another inside the storage.
TensorView rebuild_tensor(const std::vector<TorchNode*>& arguments, const PickleError& error);

}  // namespace tandem::formats
