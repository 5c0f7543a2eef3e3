// Names, types and errors of oneCCL's interface. Include oneapi/ccl.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/comm/tandem_comm.h"

namespace ccl {

using string_class = std::string;
template <class T>
using vector_class = std::vector<T>;
template <class T, class U>
using pair_class = std::pair<T, U>;
template <class K, class V>
using map_class = std::map<K, V>;
template <class T>
using shared_ptr_class = std::shared_ptr<T>;
template <class T>
using unique_ptr_class = std::unique_ptr<T>;
template <class T>
using reference_wrapper_class = std::reference_wrapper<T>;

// ---- errors ----

class exception : public std::exception {
 public:
  explicit exception(string_class message) : message_("oneCCL: " + std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  string_class message_;
};
class invalid_argument : public exception {
 public:
  using exception::exception;
};
// Features of oneCCL that this library does not support.
class unsupported : public exception {
 public:
  using exception::exception;
};

// ---- numbers ----

enum class reduction : int { sum = 0, prod, min, max, avg, custom };

enum class datatype : int {
  int8 = 0,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16
};

struct library_version {
  unsigned int major;
  unsigned int minor;
  unsigned int update;
  const char* product_status;
  const char* build_date;
  const char* full;
  string_class cl_backend_name;
};

namespace detail {

// Throws for a code of the library; `comm` may be null.
inline void check(tdmResult_t result, tdmComm_t comm) {
  if (result == tdmSuccess) return;
  const string_class message = tdmGetLastError(comm);
  if (result == tdmInvalidArgument) throw invalid_argument(message);
  throw exception(message);
}

// The representation of numbers of a type if nothing is reduced: `width` elements of `type` each.
struct moved {
  tdmDataType_t type;
  std::size_t width;
};
inline moved move_as(datatype dtype) {
  switch (dtype) {
    case datatype::int8:
      return {tdmInt8, 1};
    case datatype::uint8:
      return {tdmUint8, 1};
    case datatype::int16:
    case datatype::uint16:
      return {tdmUint8, 2};
    case datatype::int32:
      return {tdmInt32, 1};
    case datatype::uint32:
      return {tdmUint8, 4};
    case datatype::int64:
      return {tdmInt64, 1};
    case datatype::uint64:
      return {tdmUint64, 1};
    case datatype::float16:
      return {tdmFloat16, 1};
    case datatype::float32:
      return {tdmFloat32, 1};
    case datatype::float64:
      return {tdmFloat64, 1};
    case datatype::bfloat16:
      return {tdmBfloat16, 1};
  }
  throw invalid_argument("no datatype has the number " + std::to_string(static_cast<int>(dtype)));
}

inline tdmDataType_t reduce_as(datatype dtype) {
  const moved found = move_as(dtype);
  if (found.width == 1) return found.type;
  throw unsupported("no sums of int16, uint16 and uint32; try int32 or int64");
}

inline tdmRedOp_t to_op(reduction op) {
  switch (op) {
    case reduction::sum:
      return tdmSum;
    case reduction::prod:
      return tdmProd;
    case reduction::min:
      return tdmMin;
    case reduction::max:
      return tdmMax;
    case reduction::avg:
      return tdmAvg;
    case reduction::custom:
      break;
  }
  throw unsupported("no reductions of a program's own; try sum, prod, min, max or avg");
}

template <class T>
constexpr bool is_number =
    std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, long double>;

// The type of a typed buffer.
template <class T>
constexpr datatype datatype_of() {
  static_assert(is_number<T>, "expected a buffer of integers, float or double");
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? datatype::float32 : datatype::float64;
  } else {
    constexpr int kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<datatype>(2 * kLog + (std::is_unsigned_v<T> ? 1 : 0));
  }
}

}  // namespace detail

// Bytes of one number.
inline std::size_t get_datatype_size(datatype dtype) {
  switch (dtype) {
    case datatype::int8:
    case datatype::uint8:
      return 1;
    case datatype::int16:
    case datatype::uint16:
    case datatype::float16:
    case datatype::bfloat16:
      return 2;
    case datatype::int32:
    case datatype::uint32:
    case datatype::float32:
      return 4;
    case datatype::int64:
    case datatype::uint64:
    case datatype::float64:
      return 8;
  }
  throw invalid_argument("no datatype has the number " + std::to_string(static_cast<int>(dtype)));
}

// The version of the interface that this one follows; `full` names the underlying library.
inline library_version get_library_version() {
  return {2021,    14, 0, "tandem", "", "oneCCL 2021.14's interface over tandem's collectives",
          "native"};
}

// ---- objects that host programs pass ----

// Operations on host memory have no queue: streams and the two other types here are placeholders.
class stream {};
class device {};
class context {};
inline stream create_stream() { return {}; }
inline device create_device() { return {}; }
inline context create_context() { return {}; }
inline const stream default_stream{};

}  // namespace ccl
