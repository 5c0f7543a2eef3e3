// Content of a file of torch.save: a tree of Python's plain values and tensors.
//
//   const TorchFile file(checkpoint / "optimizer.pt");
//   for (const auto& [index, state] : file.root()["state"].items())
//     copy_to_float(state["exp_avg"].as_tensor(), moments_of(index.as_int()));
//
// A TorchValue is a reference into the file that was read: cheap to copy, valid as long as the
// TorchFile. It knows its place, so that a wrong type is a DataError such as
// "'optimizer.pt': param_groups[0].lr is a string; expected a number". Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/formats/tensor_view.h"

namespace tandem::formats {

struct TorchNode;

class TorchValue {
 public:
  // Made by TorchFile; `where` is the file, then the path inside it.
  TorchValue(const TorchNode& node, std::string where) : node_(&node), where_(std::move(where)) {}

  // "None", "a bool", "an int", "a float", "a string", "a tuple", "a list", "a dict", "a tensor",
  // "an object"
  std::string_view type_name() const;
  bool is_none() const;
  bool is_string() const;
  bool is_number() const;  // int or float
  bool is_tensor() const;
  bool is_dict() const;
  bool is_list() const;  // list or tuple
  bool is_object() const;

  // Each throws DataError when the value is of another type.
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_double() const;  // an int or a float
  std::string_view as_string() const;
  const TensorView& as_tensor() const;  // its name is empty

  // Entries of a list, a tuple or a dict.
  std::size_t size() const;
  // Entry of a list or tuple, or of a dict under this int; DataError if it is missing.
  TorchValue operator[](std::int64_t index) const;
  // Entry of a dict under this string; DataError if it is missing.
  TorchValue operator[](std::string_view key) const;
  std::optional<TorchValue> find(std::string_view key) const;  // nothing when absent
  std::optional<TorchValue> find(std::int64_t key) const;
  // Key and value of every entry of a dict, in the file's order.
  std::vector<std::pair<TorchValue, TorchValue>> items() const;
  // Entries of a list or tuple.
  std::vector<TorchValue> elements() const;

  // For an object: "module name" of its class, and its dict of attributes (nothing without
  // attributes).
  std::string_view class_name() const;
  std::optional<TorchValue> attributes() const;

  // The file and the place in it, for messages of the caller.
  const std::string& where() const { return where_; }

 private:
  TorchValue entry(const TorchNode& node, const std::string& step) const;
  [[noreturn]] void wrong_type(std::string_view expected) const;

  const TorchNode* node_;
  std::string where_;
};

// --- How the values lie in memory; of interest to the reader of pickles only ---

// A name that Python would import. Only those of torch_names.cc's list are made.
enum class TorchGlobal {
  kOrderedDict,
  kRebuildTensor,
  kRebuildParameter,
  kStorageType,
};

struct TorchGlobalName {
  TorchGlobal global;
  DType dtype = DType::kF32;  // for a storage type
};

// The bytes that one or more tensors look at.
struct TorchStorage {
  DType dtype = DType::kF32;
  std::string key;
  std::span<const std::byte> bytes;
};

struct TorchList {
  bool is_tuple = false;
  std::vector<TorchNode*> elements;
};

struct TorchDict {
  std::vector<std::pair<TorchNode*, TorchNode*>> items;
};

// An instance of a class that is not known here, or the class: only described, nothing is made of
// it.
struct TorchObject {
  std::string class_name;
  const TorchNode* attributes = nullptr;  // a dict
};

struct TorchNode {
  std::variant<std::monostate, bool, std::int64_t, double, std::string_view, TorchList, TorchDict,
               TensorView, TorchGlobalName, TorchStorage, TorchObject>
      value;
};

std::string_view type_name(const TorchNode& node);

}  // namespace tandem::formats
