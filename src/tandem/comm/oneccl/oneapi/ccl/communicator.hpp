// Communicators of oneCCL's interface, and the stores through which their ranks bootstrap. Include
// oneapi/ccl.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "attributes.hpp"
#include "types.hpp"

namespace ccl {

// A store supplied by the program: get() waits until a rank has set the key.
class kvs_interface {
 public:
  virtual ~kvs_interface() = default;
  virtual vector_class<char> get(const string_class& key) = 0;
  virtual void set(const string_class& key, const vector_class<char>& data) = 0;
};

// The library's own store: an address that the program sends from rank 0 to the others. All
// communicators made from one have the same ranks. It stores no data for the program.
class kvs final : public kvs_interface {
 public:
  static constexpr std::size_t address_max_size = TDM_UNIQUE_ID_BYTES;
  using address_type = std::array<char, address_max_size>;

  explicit kvs(const address_type& address) : address_(address) {}
  address_type get_address() const { return address_; }
  vector_class<char> get(const string_class&) override { refuse(); }
  void set(const string_class&, const vector_class<char>&) override { refuse(); }

  // Address for the bootstrap of the next communicator. The first communicator uses the given
  // address; its ranks agree on the addresses of later ones. Collective.
  tdmUniqueId next_id(int rank) {
    tdmUniqueId id;
    if (first_ == nullptr) {
      std::memcpy(id.internal, address_.data(), sizeof(id.internal));
      return id;
    }
    if (rank == 0) detail::check(tdmGetUniqueId(&id), nullptr);
    detail::check(
        tdmBroadcast(id.internal, id.internal, sizeof(id.internal), tdmUint8, 0, first_.get()),
        first_.get());
    return id;
  }
  void remember(const std::shared_ptr<tdmComm>& made) {
    if (first_ == nullptr) first_ = made;
  }

 private:
  [[noreturn]] static void refuse() {
    throw unsupported("this kvs stores nothing; try a class of your own with ccl::kvs_interface");
  }
  address_type address_;
  std::shared_ptr<tdmComm> first_;
};

// Called by the process that will be rank 0.
inline shared_ptr_class<kvs> create_main_kvs(const kvs_attr& = default_kvs_attr) {
  tdmUniqueId id;
  detail::check(tdmGetUniqueId(&id), nullptr);
  kvs::address_type address;
  std::copy(std::begin(id.internal), std::end(id.internal), address.begin());
  return std::make_shared<kvs>(address);
}
inline shared_ptr_class<kvs> create_kvs(const kvs::address_type& address,
                                        const kvs_attr& = default_kvs_attr) {
  return std::make_shared<kvs>(address);
}

namespace detail {

// A communicator that ends with its last reference. `parent`: the communicator it was split from,
// which ends after it.
inline std::shared_ptr<tdmComm> own(tdmComm_t comm, std::shared_ptr<tdmComm> parent = nullptr) {
  return {comm, [parent](tdmComm_t gone) { tdmCommDestroy(gone); }};
}

// Number of communicators that this rank has created through `store`. Weak pointers, so that a new
// store at the address of a destroyed one starts at zero.
inline int count_communicator(const shared_ptr_class<kvs_interface>& store, int rank) {
  static std::mutex mutex;
  static std::map<std::weak_ptr<kvs_interface>, std::map<int, int>, std::owner_less<>> made;
  const std::lock_guard<std::mutex> lock(mutex);
  return made[store][rank]++;
}

// The id of a communicator through a store supplied by the program.
inline tdmUniqueId id_through(const shared_ptr_class<kvs_interface>& store, int rank) {
  const string_class key = "tandem/id/" + std::to_string(count_communicator(store, rank));
  tdmUniqueId id;
  if (rank == 0) {
    check(tdmGetUniqueId(&id), nullptr);
    store->set(key, {std::begin(id.internal), std::end(id.internal)});
    return id;
  }
  const vector_class<char> found = store->get(key);
  if (found.size() < sizeof(id.internal)) {
    throw invalid_argument("the kvs gave " + std::to_string(found.size()) + " bytes for " + key +
                           ", expected " + std::to_string(sizeof(id.internal)));
  }
  std::copy_n(found.begin(), sizeof(id.internal), id.internal);
  return id;
}

}  // namespace detail

// A set of ranks. Copies refer to the same communicator; it ends with the last copy and its last
// event.
class communicator {
 public:
  communicator() = default;
  explicit communicator(std::shared_ptr<tdmComm> comm) : comm_(std::move(comm)) {}

  int rank() const {
    int found = 0;
    detail::check(tdmCommUserRank(comm_.get(), &found), comm_.get());
    return found;
  }
  int size() const {
    int found = 0;
    detail::check(tdmCommCount(comm_.get(), &found), comm_.get());
    return found;
  }
  device get_device() const { return {}; }
  context get_context() const { return {}; }
  // The ranks with this one's color, in the order of their keys, then ranks. Collective.
  communicator split(const comm_split_attr& attr) const {
    tdmComm_t made = nullptr;
    detail::check(tdmCommSplit(comm_.get(), attr.color(), attr.key(), &made), comm_.get());
    return communicator(detail::own(made, comm_));
  }
  const std::shared_ptr<tdmComm>& handle() const { return comm_; }

 private:
  std::shared_ptr<tdmComm> comm_;
};

// Collective over `size` processes.
inline communicator create_communicator(int size, int rank, shared_ptr_class<kvs_interface> store,
                                        const comm_attr& = default_comm_attr) {
  if (store == nullptr) throw invalid_argument("a communicator needs a kvs, found none");
  kvs* const native = dynamic_cast<kvs*>(store.get());
  const tdmUniqueId id =
      native != nullptr ? native->next_id(rank) : detail::id_through(store, rank);
  tdmComm_t made = nullptr;
  detail::check(tdmCommInitRank(&made, size, id, rank, nullptr), nullptr);
  auto owned = detail::own(made);
  if (native != nullptr) native->remember(owned);
  return communicator(std::move(owned));
}
inline communicator create_communicator(int size, int rank, const device&, const context&,
                                        shared_ptr_class<kvs_interface> store,
                                        const comm_attr& attr = default_comm_attr) {
  return create_communicator(size, rank, std::move(store), attr);
}
// The communicator of the ranks that a launcher started.
inline communicator create_communicator(const comm_attr& = default_comm_attr) {
  tdmComm_t made = nullptr;
  detail::check(tdmCommInitFromEnvironment(&made, nullptr), nullptr);
  return communicator(detail::own(made));
}
// One rank per process: `devices` has one entry.
inline vector_class<communicator> create_communicators(
    int size, const vector_class<pair_class<int, device>>& devices, const context&,
    shared_ptr_class<kvs_interface> store, const comm_attr& attr = default_comm_attr) {
  if (devices.size() != 1) throw unsupported("several ranks in one call; try one per process");
  return {create_communicator(size, devices[0].first, std::move(store), attr)};
}

inline communicator split_communicator(const communicator& comm, int color, int key) {
  comm_split_attr attr;
  attr.set<comm_split_attr_id::color>(color);
  attr.set<comm_split_attr_id::key>(key);
  return comm.split(attr);
}
inline vector_class<communicator> split_communicators(
    const vector_class<pair_class<communicator, comm_split_attr>>& attrs) {
  vector_class<communicator> made;
  for (const auto& [comm, attr] : attrs) made.push_back(comm.split(attr));
  return made;
}

}  // namespace ccl
