#include "tandem/formats/torch_names.h"

#include <array>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::formats {
namespace {

constexpr int kMaxPickleDepth = 64;
constexpr std::uint64_t kMaxEntries = 10'000'000;

struct KnownName {
  std::string_view name;  // module and name, as GLOBAL has them
  TorchGlobalName value;
};

constexpr std::array kKnownNames = {
    KnownName{"collections OrderedDict", {TorchGlobal::kOrderedDict}},
    KnownName{"torch._utils _rebuild_tensor_v2", {TorchGlobal::kRebuildTensor}},
    KnownName{"torch._utils _rebuild_parameter", {TorchGlobal::kRebuildParameter}},
    KnownName{"torch FloatStorage", {TorchGlobal::kStorageType, DType::kF32}},
    KnownName{"torch HalfStorage", {TorchGlobal::kStorageType, DType::kF16}},
    KnownName{"torch BFloat16Storage", {TorchGlobal::kStorageType, DType::kBF16}},
    KnownName{"torch DoubleStorage", {TorchGlobal::kStorageType, DType::kF64}},
    KnownName{"torch LongStorage", {TorchGlobal::kStorageType, DType::kI64}},
    KnownName{"torch IntStorage", {TorchGlobal::kStorageType, DType::kI32}},
    KnownName{"torch ShortStorage", {TorchGlobal::kStorageType, DType::kI16}},
    KnownName{"torch CharStorage", {TorchGlobal::kStorageType, DType::kI8}},
    KnownName{"torch ByteStorage", {TorchGlobal::kStorageType, DType::kU8}},
    KnownName{"torch BoolStorage", {TorchGlobal::kStorageType, DType::kBool}}};

// Checks that what came out can be walked through: values may be shared, even with themselves, and
// the same list can stand in a list twice, in a list twice …
class TreeCheck {
 public:
  explicit TreeCheck(const std::string& where) : where_(where) {}

  // Number of values in the tree below `node`, itself included.
  std::uint64_t check(const TorchNode& node, int depth) {
    if (depth > kMaxPickleDepth)
      raise<DataError>("{}: values are nested deeper than {}, or without end", where_,
                       kMaxPickleDepth);
    const auto known = known_.find(&node);
    if (known != known_.end() && known->second.second >= depth) return known->second.first;
    std::uint64_t count = 1;
    if (const auto* list = std::get_if<TorchList>(&node.value)) {
      for (const TorchNode* element : list->elements) count += check(*element, depth + 1);
    } else if (const auto* dict = std::get_if<TorchDict>(&node.value)) {
      check_keys(*dict);
      for (const auto& [key, value] : dict->items) count += 1 + check(*value, depth + 1);
    } else if (const auto* object = std::get_if<TorchObject>(&node.value)) {
      if (object->attributes != nullptr) count += check(*object->attributes, depth + 1);
    } else if (std::holds_alternative<TorchGlobalName>(node.value) ||
               std::holds_alternative<TorchStorage>(node.value)) {
      raise<DataError>("{}: {} stands where a value is expected", where_, type_name(node));
    }
    if (count > kMaxEntries)
      raise<DataError>("{}: more than {} values; expected a dict of tensors", where_, kMaxEntries);
    known_[&node] = {count, depth};
    return count;
  }

 private:
  void check_keys(const TorchDict& dict) const {
    std::unordered_set<std::string_view> names;
    std::unordered_set<std::int64_t> numbers;
    for (const auto& [key, value] : dict.items) {
      const auto* name = std::get_if<std::string_view>(&key->value);
      const auto* number = std::get_if<std::int64_t>(&key->value);
      if (name == nullptr && number == nullptr) {
        raise<DataError>("{}: a dict has {} as a key; expected strings and ints", where_,
                         type_name(*key));
      }
      const bool is_new =
          name != nullptr ? names.insert(*name).second : numbers.insert(*number).second;
      if (!is_new) {
        raise<DataError>("{}: a dict has the key {} twice", where_,
                         name != nullptr ? in_quotes(*name) : fmt::format("{}", *number));
      }
    }
  }

  const std::string& where_;
  std::unordered_map<const TorchNode*, std::pair<std::uint64_t, int>> known_;  // size, depth
};

}  // namespace

std::string in_quotes(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string_view torch_storage_type(DType dtype) {
  constexpr std::string_view kModule = "torch ";
  for (const KnownName& known : kKnownNames) {
    if (known.value.global == TorchGlobal::kStorageType && known.value.dtype == dtype)
      return known.name.substr(kModule.size());
  }
  raise<InvalidArgument>("torch's files have no type for {}", to_string(dtype));
}

std::optional<TorchGlobalName> find_torch_name(std::string_view module_and_name) {
  for (const KnownName& known : kKnownNames) {
    if (known.name == module_and_name) return known.value;
  }
  return std::nullopt;
}

void check_torch_tree(const TorchNode& root, const std::string& where) {
  TreeCheck(where).check(root, 0);
}

}  // namespace tandem::formats
