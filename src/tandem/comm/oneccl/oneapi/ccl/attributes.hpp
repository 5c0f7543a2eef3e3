// Attributes of oneCCL's interface: those that change an operation here, those that are only hints,
// and those that are refused. Include oneapi/ccl.hpp.
#pragma once

#include "types.hpp"

namespace ccl {

enum class operation_attr_id : int { version, priority, synchronous, to_cache, match_id };
enum class allreduce_attr_id : int { reduction_fn };
enum class reduce_attr_id : int { reduction_fn };
enum class reduce_scatter_attr_id : int { reduction_fn };
enum class comm_split_attr_id : int { version, color, key, group };
enum class comm_attr_id : int { version };
enum class kvs_attr_id : int { version, ip_port };
enum class init_attr_id : int { version };

// A value with its name, for create_…_attr().
template <auto Id, class Value>
struct attr_value {
  static constexpr auto idx() { return Id; }
  const Value& val() const { return value; }
  Value value;
};
template <auto Id, class Value>
attr_value<Id, std::decay_t<Value>> attr_val(Value&& value) {
  return {std::forward<Value>(value)};
}

// Attributes of all operations. `synchronous` makes the call wait. The others are hints without
// effect: operations run in the order in which they were started, and no cache is needed.
class operation_attr {
 public:
  template <auto Id, class Value>
  void set(Value&& value) {
    if constexpr (std::is_same_v<decltype(Id), operation_attr_id>) {
      if constexpr (Id == operation_attr_id::priority) priority_ = value;
      if constexpr (Id == operation_attr_id::synchronous) synchronous_ = value;
      if constexpr (Id == operation_attr_id::to_cache) to_cache_ = value;
      if constexpr (Id == operation_attr_id::match_id) match_id_ = value;
    } else {
      throw unsupported("no reductions of a program's own (reduction_fn)");
    }
  }
  template <auto Id>
  auto get() const {
    static_assert(std::is_same_v<decltype(Id), operation_attr_id>,
                  "not an attribute of operations");
    if constexpr (Id == operation_attr_id::priority) return priority_;
    if constexpr (Id == operation_attr_id::synchronous) return synchronous_;
    if constexpr (Id == operation_attr_id::to_cache) return to_cache_;
    if constexpr (Id == operation_attr_id::match_id) return match_id_;
    if constexpr (Id == operation_attr_id::version) return get_library_version();
  }

 private:
  std::size_t priority_ = 0;
  bool synchronous_ = false;
  bool to_cache_ = false;
  string_class match_id_;
};

class allgather_attr : public operation_attr {};
class allgatherv_attr : public operation_attr {};
class allreduce_attr : public operation_attr {};
class alltoall_attr : public operation_attr {};
class alltoallv_attr : public operation_attr {};
class barrier_attr : public operation_attr {};
class broadcast_attr : public operation_attr {};
class pt2pt_attr : public operation_attr {};
class reduce_attr : public operation_attr {};
class reduce_scatter_attr : public operation_attr {};

inline const allgather_attr default_allgather_attr{};
inline const allgatherv_attr default_allgatherv_attr{};
inline const allreduce_attr default_allreduce_attr{};
inline const alltoall_attr default_alltoall_attr{};
inline const alltoallv_attr default_alltoallv_attr{};
inline const barrier_attr default_barrier_attr{};
inline const broadcast_attr default_broadcast_attr{};
inline const pt2pt_attr default_pt2pt_attr{};
inline const reduce_attr default_reduce_attr{};
inline const reduce_scatter_attr default_reduce_scatter_attr{};

class comm_split_attr {
 public:
  template <auto Id, class Value>
  void set(Value&& value) {
    static_assert(std::is_same_v<decltype(Id), comm_split_attr_id>, "not an attribute of a split");
    if constexpr (Id == comm_split_attr_id::color) color_ = static_cast<int>(value);
    if constexpr (Id == comm_split_attr_id::key) key_ = static_cast<int>(value);
    if constexpr (Id == comm_split_attr_id::group) {
      (void)value;
      throw unsupported("a split by kind of group; try a color");
    }
  }
  int color() const { return color_; }
  int key() const { return key_; }

 private:
  int color_ = 0;
  int key_ = 0;
};

// Attributes without a choice.
template <class AttrId, AttrId Version>
class empty_attr {
 public:
  template <AttrId Id, class Value>
  void set(Value&&) {
    if constexpr (Id != Version) throw unsupported("an address of a program's own for a kvs");
  }
};
using comm_attr = empty_attr<comm_attr_id, comm_attr_id::version>;
using kvs_attr = empty_attr<kvs_attr_id, kvs_attr_id::version>;
using init_attr = empty_attr<init_attr_id, init_attr_id::version>;
inline const comm_attr default_comm_attr{};
inline const kvs_attr default_kvs_attr{};
inline const init_attr default_init_attr{};

namespace detail {

template <class Attr, class... Values>
Attr make_attr(const Values&... values) {
  Attr made;
  (made.template set<Values::idx()>(values.val()), ...);
  return made;
}

}  // namespace detail

template <class Attr, class... Values>
Attr create_operation_attr(const Values&... values) {
  return detail::make_attr<Attr>(values...);
}
template <class... Values>
comm_split_attr create_comm_split_attr(const Values&... values) {
  return detail::make_attr<comm_split_attr>(values...);
}
template <class... Values>
comm_attr create_comm_attr(const Values&... values) {
  return detail::make_attr<comm_attr>(values...);
}
template <class... Values>
kvs_attr create_kvs_attr(const Values&... values) {
  return detail::make_attr<kvs_attr>(values...);
}
template <class... Values>
init_attr create_init_attr(const Values&... values) {
  return detail::make_attr<init_attr>(values...);
}

// No preparation is needed.
inline void init(const init_attr& = default_init_attr) {}

}  // namespace ccl
