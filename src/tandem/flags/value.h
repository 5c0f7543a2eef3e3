// From a field of an argument struct to a command-line value and back: what one row of a flag table
// needs to know about the place where its value goes. Values travel as JSON, so that the command
// line, a JSON file of flags, the printed arguments and training_args.json share one form.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::flags {

using Json = nlohmann::json;

// The structs that one program's flags fill, found by their types.
class ArgumentParts {
 public:
  template <class... Structs>
  explicit ArgumentParts(Structs&... parts) {
    (add(parts), ...);
  }
  // `part` must outlive this.
  template <class Struct>
  void add(Struct& part) {
    parts_.emplace_back(typeid(Struct), &part);
  }
  // A flag of a struct that was not added is our bug.
  template <class Struct>
  Struct& get() const {
    const auto found = std::find_if(parts_.begin(), parts_.end(),
                                    [](const auto& part) { return part.first == typeid(Struct); });
    TANDEM_CHECK(found != parts_.end(), "no part {}", typeid(Struct).name());
    return *static_cast<Struct*>(found->second);
  }

 private:
  std::vector<std::pair<std::type_index, void*>> parts_;
};

enum class Kind { kBool, kInteger, kNumber, kString, kChoice, kList, kDict };

// Where a flag's value goes. The value given to `set` has the kind's JSON type and is in range.
struct Binding {
  Kind kind = Kind::kString;
  bool optional = false;  // the field can be unset: JSON null
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  std::span<const std::string_view> names;  // names of an enum, in the enumerators' order
  Json initial;                             // what `get` returns for a struct with its defaults
  Json (*get)(const ArgumentParts&) = nullptr;
  void (*set)(const ArgumentParts&, const Json&) = nullptr;
};

namespace internal {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class M>
struct MemberTraits;
template <class C, class V>
struct MemberTraits<V C::*> {
  using Class = C;
  using Value = V;
};

template <class T>
Json to_json_value(const T& field) {
  if constexpr (IsOptional<T>::value) {
    return field ? to_json_value(*field) : Json(nullptr);
  } else if constexpr (std::is_enum_v<T>) {
    return Json(std::string(enum_names(field)[static_cast<std::size_t>(field)]));
  } else {
    return Json(field);
  }
}

template <class T>
void from_json_value(const Json& value, T& field) {
  if constexpr (IsOptional<T>::value) {
    // An empty text means "not given", as Python's truth value of '' does wherever Hugging Face
    // looks at such a field.
    if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty())) {
      field.reset();
    } else {
      from_json_value(value, field.emplace());
    }
  } else if constexpr (std::is_enum_v<T>) {
    const auto names = enum_names(T{});
    const auto found = std::find(names.begin(), names.end(), value.get<std::string>());
    TANDEM_CHECK(found != names.end(), "value {} has no enumerator", value.dump());
    field = static_cast<T>(found - names.begin());
  } else {
    field = value.get<T>();
  }
}

template <class T>
Binding binding_of_type() {
  Binding binding;
  if constexpr (IsOptional<T>::value) {
    binding = binding_of_type<typename T::value_type>();
    binding.optional = true;
  } else if constexpr (std::is_enum_v<T>) {
    binding.kind = Kind::kChoice;
    binding.names = enum_names(T{});
  } else if constexpr (std::is_same_v<T, bool>) {
    binding.kind = Kind::kBool;
  } else if constexpr (std::is_integral_v<T>) {
    binding.kind = Kind::kInteger;
    binding.min = static_cast<double>(std::numeric_limits<T>::min());
    binding.max = static_cast<double>(std::numeric_limits<T>::max());
  } else if constexpr (std::is_floating_point_v<T>) {
    binding.kind = Kind::kNumber;
  } else if constexpr (std::is_same_v<T, std::string>) {
    binding.kind = Kind::kString;
  } else {
    static_assert(std::is_same_v<T, std::vector<std::string>>, "a field type without a flag kind");
    binding.kind = Kind::kList;
  }
  return binding;
}

}  // namespace internal

// For Binding::initial.
template <class Struct>
Json initial_of(const Binding& binding) {
  Struct defaults;
  return binding.get(ArgumentParts(defaults));
}

// The binding of a struct's member: field<&TrainingArguments::learning_rate>().
template <auto Member>
Binding field() {
  using Traits = internal::MemberTraits<decltype(Member)>;
  using Class = typename Traits::Class;
  Binding binding = internal::binding_of_type<typename Traits::Value>();
  binding.get = [](const ArgumentParts& parts) {
    return internal::to_json_value(parts.get<Class>().*Member);
  };
  binding.set = [](const ArgumentParts& parts, const Json& value) {
    internal::from_json_value(value, parts.get<Class>().*Member);
  };
  binding.initial = initial_of<Class>(binding);
  return binding;
}

}  // namespace tandem::flags
