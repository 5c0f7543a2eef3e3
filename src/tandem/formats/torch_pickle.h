// The part of Python's pickle format that torch.save needs for dicts of numbers and tensors. It is
// an interpreter with a fixed list of instructions and of names: nothing is imported, nothing is
// run, and a file that names anything else is refused with that name.
// Source: pickletools of CPython (protocol 2); torch/_weights_only_unpickler.py for what occurs.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tandem/formats/torch_value.h"

namespace tandem::formats {

// The bytes of the storage of this key; nothing if it is unknown.
using FindStorage = std::function<std::optional<std::span<const std::byte>>(std::string_view key)>;

// Treatment of classes outside the list of torch_names.cc, in files such as training_args.bin. With
// kRefused they are errors; with kDescribed, their instances are nodes with the name of the class
// and the attributes that the file gives them (TorchObject). Nothing is imported or run in either
// case.
enum class PickledObjects { kRefused, kDescribed };

// Runs the program `pickle` and returns its result. All nodes are put into `nodes`, whose texts
// point into `pickle`. The result is a finite tree at most 64 deep whose dicts have strings and
// ints as keys, each once. Throws DataError that names `where`.
const TorchNode& run_pickle(std::span<const std::byte> pickle, const FindStorage& find_storage,
                            const std::string& where, PickledObjects objects,
                            std::deque<TorchNode>& nodes);

}  // namespace tandem::formats
