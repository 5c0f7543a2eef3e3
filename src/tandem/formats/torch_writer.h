// Values to be written as torch.save writes them: a tree of Python's plain values and tensors.
//
//   TorchItem::Dict group;
//   group.set("lr", 5e-5);
//   group.set("params", TorchItem::List{{TorchItem{std::int64_t{0}}}});
//   write_torch_file(path, TorchItem{std::move(group)});
//
// torch.load(path, weights_only=True) reads it, and so does TorchFile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/formats/tensor_view.h"

namespace tandem::formats {

struct TorchItem {
  struct List {
    std::vector<TorchItem> elements;
    bool is_tuple = false;
  };
  struct Entry;
  // In the order in which Python's dict would list its entries.
  struct Dict {
    std::vector<Entry> entries;
    bool is_ordered = false;  // a collections.OrderedDict

    template <class T>
    void set(std::string key, T item);
    void set(std::string key, TorchItem item);
    void set(std::int64_t key, TorchItem item);
  };

  // None, a bool, an int, a float, a text, a tensor (its name does not count), …
  std::variant<std::monostate, bool, std::int64_t, double, std::string, TensorView, List, Dict>
      value;
};

// Not a pair, which wants whole types at once (clang).
struct TorchItem::Entry {
  TorchItem key;
  TorchItem value;
};

template <class T>
void TorchItem::Dict::set(std::string key, T item) {
  set(std::move(key), TorchItem{std::move(item)});
}

// Writes the file atomically. Every tensor gets a storage of its own. Throws IoError, and
// InvalidArgument for a tensor of a type that torch's files do not have, or whose bytes do not fit
// its shape.
void write_torch_file(const std::filesystem::path& path, const TorchItem& root);

}  // namespace tandem::formats
