// Whole numbers of JSON from outside.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "tandem/core/json.h"

namespace tandem {

// `value` as a T; a fraction is cut, as Python's int() does. Throws nlohmann::json::exception for
// what is not a number and for one that no T holds: value.get<T>() casts that, which C++ leaves
// undefined.
template <class T, class Json>
T whole_number(const Json& value) {
  bool fits = true;
  if (value.is_number_float()) {
    const double number = std::trunc(value.template get<double>());
    constexpr double kEnd = 2.0 * static_cast<double>(T{1} << (std::numeric_limits<T>::digits - 1));
    fits = number >= static_cast<double>(std::numeric_limits<T>::min()) && number < kEnd;
  } else if (value.is_number_unsigned()) {
    fits = std::in_range<T>(value.template get<std::uint64_t>());
  } else if (value.is_number_integer()) {
    fits = std::in_range<T>(value.template get<std::int64_t>());
  }
  if (!fits) throw nlohmann::detail::out_of_range::create(406, "a number is too large", &value);
  return value.template get<T>();
}

}  // namespace tandem
