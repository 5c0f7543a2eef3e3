#include "tandem/formats/torch_value.h"

#include "tandem/core/error.h"

namespace tandem::formats {

std::string_view type_name(const TorchNode& node) {
  struct Names {
    std::string_view operator()(std::monostate) const { return "None"; }
    std::string_view operator()(bool) const { return "a bool"; }
    std::string_view operator()(std::int64_t) const { return "an int"; }
    std::string_view operator()(double) const { return "a float"; }
    std::string_view operator()(std::string_view) const { return "a string"; }
    std::string_view operator()(const TorchList& list) const {
      return list.is_tuple ? "a tuple" : "a list";
    }
    std::string_view operator()(const TorchDict&) const { return "a dict"; }
    std::string_view operator()(const TensorView&) const { return "a tensor"; }
    std::string_view operator()(const TorchGlobalName&) const { return "a type"; }
    std::string_view operator()(const TorchStorage&) const { return "a storage"; }
    std::string_view operator()(const TorchObject&) const { return "an object"; }
  };
  return std::visit(Names(), node.value);
}

void TorchValue::wrong_type(std::string_view expected) const {
  raise<DataError>("{} is {}; expected {}", where_, type_name(), expected);
}

std::string_view TorchValue::type_name() const { return formats::type_name(*node_); }
bool TorchValue::is_none() const { return std::holds_alternative<std::monostate>(node_->value); }
bool TorchValue::is_string() const {
  return std::holds_alternative<std::string_view>(node_->value);
}
bool TorchValue::is_number() const {
  return std::holds_alternative<std::int64_t>(node_->value) ||
         std::holds_alternative<double>(node_->value);
}
bool TorchValue::is_tensor() const { return std::holds_alternative<TensorView>(node_->value); }
bool TorchValue::is_dict() const { return std::holds_alternative<TorchDict>(node_->value); }
bool TorchValue::is_list() const { return std::holds_alternative<TorchList>(node_->value); }

bool TorchValue::is_object() const { return std::holds_alternative<TorchObject>(node_->value); }

std::string_view TorchValue::class_name() const {
  if (const auto* object = std::get_if<TorchObject>(&node_->value)) return object->class_name;
  wrong_type("an object");
}

std::optional<TorchValue> TorchValue::attributes() const {
  const auto* object = std::get_if<TorchObject>(&node_->value);
  if (object == nullptr) wrong_type("an object");
  if (object->attributes == nullptr) return std::nullopt;
  return entry(*object->attributes, "");
}

bool TorchValue::as_bool() const {
  if (const auto* value = std::get_if<bool>(&node_->value)) return *value;
  wrong_type("a bool");
}

std::int64_t TorchValue::as_int() const {
  if (const auto* value = std::get_if<std::int64_t>(&node_->value)) return *value;
  wrong_type("an int");
}

double TorchValue::as_double() const {
  if (const auto* value = std::get_if<double>(&node_->value)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&node_->value))
    return static_cast<double>(*value);
  wrong_type("a number");
}

std::string_view TorchValue::as_string() const {
  if (const auto* value = std::get_if<std::string_view>(&node_->value)) return *value;
  wrong_type("a string");
}

const TensorView& TorchValue::as_tensor() const {
  if (const auto* value = std::get_if<TensorView>(&node_->value)) return *value;
  wrong_type("a tensor");
}

std::size_t TorchValue::size() const {
  if (const auto* list = std::get_if<TorchList>(&node_->value)) return list->elements.size();
  if (const auto* dict = std::get_if<TorchDict>(&node_->value)) return dict->items.size();
  wrong_type("a list, a tuple or a dict");
}

TorchValue TorchValue::entry(const TorchNode& node, const std::string& step) const {
  return {node, where_ + step};
}

TorchValue TorchValue::operator[](std::int64_t index) const {
  if (const auto* list = std::get_if<TorchList>(&node_->value)) {
    if (index < 0 || static_cast<std::size_t>(index) >= list->elements.size()) {
      raise<DataError>("{} has {} elements; expected one at {}", where_, list->elements.size(),
                       index);
    }
    return entry(*list->elements[static_cast<std::size_t>(index)], fmt::format("[{}]", index));
  }
  if (const auto found = find(index)) return *found;
  raise<DataError>("{} has no entry {}", where_, index);
}

TorchValue TorchValue::operator[](std::string_view key) const {
  if (const auto found = find(key)) return *found;
  raise<DataError>("{} has no entry '{}'", where_, key);
}

std::optional<TorchValue> TorchValue::find(std::string_view key) const {
  const auto* dict = std::get_if<TorchDict>(&node_->value);
  if (dict == nullptr) wrong_type("a dict");
  for (const auto& [name, value] : dict->items) {
    const auto* text = std::get_if<std::string_view>(&name->value);
    if (text != nullptr && *text == key) return entry(*value, fmt::format(" '{}'", key));
  }
  return std::nullopt;
}

std::optional<TorchValue> TorchValue::find(std::int64_t key) const {
  const auto* dict = std::get_if<TorchDict>(&node_->value);
  if (dict == nullptr) wrong_type("a dict");
  for (const auto& [name, value] : dict->items) {
    const auto* number = std::get_if<std::int64_t>(&name->value);
    if (number != nullptr && *number == key) return entry(*value, fmt::format(" {}", key));
  }
  return std::nullopt;
}

std::vector<std::pair<TorchValue, TorchValue>> TorchValue::items() const {
  const auto* dict = std::get_if<TorchDict>(&node_->value);
  if (dict == nullptr) wrong_type("a dict");
  std::vector<std::pair<TorchValue, TorchValue>> entries;
  for (const auto& [name, value] : dict->items) {
    const auto* text = std::get_if<std::string_view>(&name->value);
    const auto* number = std::get_if<std::int64_t>(&name->value);
    const std::string step = text != nullptr ? fmt::format(" '{}'", *text)
                                             : fmt::format(" {}", number != nullptr ? *number : 0);
    entries.emplace_back(entry(*name, " (a key)"), entry(*value, step));
  }
  return entries;
}

std::vector<TorchValue> TorchValue::elements() const {
  const auto* list = std::get_if<TorchList>(&node_->value);
  if (list == nullptr) wrong_type("a list or a tuple");
  std::vector<TorchValue> entries;
  for (std::size_t i = 0; i < list->elements.size(); ++i)
    entries.push_back(entry(*list->elements[i], fmt::format("[{}]", i)));
  return entries;
}

}  // namespace tandem::formats
