// Names that a pickle of torch.save may contain, and the accepted forms of its result. For sources
// of this library.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tandem/formats/torch_value.h"

namespace tandem::formats {

// The meaning of "module name" as the pickle's GLOBAL has it; nothing for a name outside the list.
std::optional<TorchGlobalName> find_torch_name(std::string_view module_and_name);

// "FloatStorage" and the like; InvalidArgument for a type without one.
std::string_view torch_storage_type(DType dtype);

// Checks that what a pickle made can be walked through: it is a finite tree of values, at most 64
// deep, and dicts have strings and ints as keys, each once. Throws DataError.
void check_torch_tree(const TorchNode& root, const std::string& where);

// Text of a file for a message: quoted, ASCII.
std::string in_quotes(std::string_view text);

}  // namespace tandem::formats
