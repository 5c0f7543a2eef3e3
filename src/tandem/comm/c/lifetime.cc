// Start and end of communicators through the C interface.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "tandem/comm/algorithms/tuning.h"
#include "tandem/comm/c/handle.h"
#include "tandem/comm/memory.h"
#include "tandem/core/env.h"
#include "tandem/rendezvous/bootstrap.h"

namespace tandem::comm::c {
namespace {

using std::chrono::milliseconds;

// The fields of a configuration that the program's version has; defaults for the others.
tdmConfig_t read_config(const tdmConfig_t* given) {
  tdmConfig_t config = TDM_CONFIG_INITIALIZER;
  if (given == nullptr) return config;
  constexpr std::size_t kHeadBytes = offsetof(tdmConfig_t, timeout_ms);
  if (given->size < kHeadBytes || given->magic != TDM_CONFIG_MAGIC) {
    raise<InvalidArgument>(
        "the configuration has size {} and magic {:#x}, expected at least {} and {:#x}; begin it "
        "as "
        "tdmConfig_t config = TDM_CONFIG_INITIALIZER",
        given->size, given->magic, kHeadBytes, TDM_CONFIG_MAGIC);
  }
  if (given->size > sizeof config) {
    raise<InvalidArgument>(
        "the configuration has {} bytes (header version {}), this library knows {} (version {}); "
        "build the program with the header of the library it runs with, or install a newer library",
        given->size, given->version, sizeof config, TDM_VERSION);
  }
  std::memcpy(&config, given, given->size);
  return config;
}

void set_milliseconds(milliseconds& value, int given, int least, const char* name) {
  if (given == TDM_UNDEFINED) return;
  if (given < least) {
    raise<InvalidArgument>("the configuration's {} is {}, expected at least {} or TDM_UNDEFINED",
                           name, given, least);
  }
  value = milliseconds(given);
}

Options options_of(const tdmConfig_t* given, const Environment& environment, bool distributed) {
  const tdmConfig_t config = read_config(given);
  Options options;
  read_limits_of_silence(environment, options);
  set_milliseconds(options.timeout, config.timeout_ms, 1, "timeout_ms");
  set_milliseconds(options.host_timeout, config.host_timeout_ms, 1, "host_timeout_ms");
  set_milliseconds(options.stall_timeout, config.stall_timeout_ms, 0, "stall_timeout_ms");
  options.node_id = environment.get("TANDEM_NODE_ID").value_or("");
  options.selection = Selection::from_environment(environment);
  options.worker = WorkerOptions::from_environment(environment, 1);
  options.tuning = tuning_from_environment(environment);
  options.transport = choose_transport(config.backend == nullptr ? "ccl" : config.backend,
                                       environment, distributed);
  options.flight_record_folder = config.flight_record_folder != nullptr
                                     ? config.flight_record_folder
                                     : environment.get("TANDEM_FLIGHT_RECORD").value_or("");
  return options;
}

void hand_over(std::unique_ptr<Communicator> communicator, tdmComm_t parent, tdmComm_t* comm) {
  auto handle = std::make_unique<tdmComm>();
  handle->communicator = std::move(communicator);
  handle->parent = parent;
  handle->entry_lock = parent != nullptr ? parent->entry_lock : std::make_shared<EntryLock>();
  handle->mailbox = std::make_unique<Mailbox>(*handle->communicator);
  if (parent != nullptr) ++parent->children;
  *comm = handle.release();
}

// ---- ids ----

// The listeners of the ids created here, until a rank 0 takes them.
class OpenAddresses {
 public:
  static OpenAddresses& instance() {
    static OpenAddresses addresses;
    return addresses;
  }
  void add(rendezvous::RendezvousAddress address) {
    const std::lock_guard lock(mutex_);
    listeners_[address.text] = std::move(address.listener);
  }
  net::FileDescriptor take(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const auto found = listeners_.find(text);
    if (found == listeners_.end()) {
      raise<InvalidUsage>(
          "rank 0 has to be the process that called tdmGetUniqueId, and an id serves one "
          "communicator: this one was made elsewhere or has been used");
    }
    net::FileDescriptor listener = std::move(found->second);
    listeners_.erase(found);
    return listener;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, net::FileDescriptor> listeners_;
};

rendezvous::RendezvousAddress address_of(const tdmUniqueId& id, int rank) {
  const auto* end = std::find(std::begin(id.internal), std::end(id.internal), '\0');
  rendezvous::RendezvousAddress address;
  address.text.assign(std::begin(id.internal), end);
  if (end == std::begin(id.internal) || end == std::end(id.internal)) {
    raise<InvalidArgument>("the id is not one that tdmGetUniqueId made; send that id to this rank");
  }
  if (rank == 0) address.listener = OpenAddresses::instance().take(address.text);
  return address;
}

void init_rank(tdmComm_t* comm, int nranks, const tdmUniqueId& id, int rank,
               const tdmConfig_t* config) {
  require_not_null(comm, "comm");
  if (nranks < 1 || nranks > rendezvous::kMaxWorldSize || rank < 0 || rank >= nranks) {
    raise<InvalidArgument>("rank {} of {}: expected 0 <= rank < nranks <= {}", rank, nranks,
                           rendezvous::kMaxWorldSize);
  }
  const Environment environment = Environment::from_process();
  const Options options = options_of(config, environment, nranks > 1);
  rendezvous::RendezvousAddress address = address_of(id, rank);
  rendezvous::BootstrapOptions bootstrap_options;
  bootstrap_options.timeout = options.timeout;
  const auto bootstrap = [&](const std::string& peer_info) {
    return rendezvous::exchange_peer_info_at(std::move(address), rank, nranks, peer_info,
                                             bootstrap_options);
  };
  hand_over(Communicator::create(rank, nranks, bootstrap, /*loopback_only=*/false, options,
                                 rendezvous::interface_choice(environment)),
            nullptr, comm);
}

ShrinkOptions shrink_options_of(const int* exclude, int exclude_count, const tdmConfig_t* config,
                                int flags) {
  if (exclude_count < 0)
    raise<InvalidArgument>("exclude_count is {}, expected at least 0", exclude_count);
  if (exclude_count > 0) require_not_null(exclude, "exclude");
  if (flags != TDM_SHRINK_DEFAULT && flags != TDM_SHRINK_ABORT) {
    raise<InvalidArgument>("flags is {}, expected TDM_SHRINK_DEFAULT or TDM_SHRINK_ABORT", flags);
  }
  ShrinkOptions options;
  options.exclude.assign(exclude, exclude + exclude_count);
  options.abort = flags == TDM_SHRINK_ABORT;
  if (config != nullptr)
    options.options = options_of(config, Environment::from_process(), /*distributed=*/true);
  return options;
}

void finalize(tdmComm_t comm, const char* function) {
  require_no_group(comm, function);
  if (comm->children > 0) {
    raise<InvalidUsage>("{}: {} communicators made of it by tdmCommSplit exist; destroy them first",
                        function, comm->children);
  }
  comm->messages.clear();
  comm->memory.clear();
  comm->communicator->close();
  comm->finalized = true;
}

}  // namespace
}  // namespace tandem::comm::c

using namespace tandem::comm::c;

tdmResult_t tdmGetVersion(int* version) {
  return guarded(nullptr, [&] {
    require_not_null(version, "version");
    *version = TDM_VERSION;
  });
}

tdmResult_t tdmGetUniqueId(tdmUniqueId* id) {
  return guarded(nullptr, [&] {
    require_not_null(id, "id");
    auto address = tandem::rendezvous::open_rendezvous_address(
        tandem::rendezvous::interface_choice(tandem::Environment::from_process()),
        TDM_UNIQUE_ID_BYTES - 1);
    std::memset(id->internal, 0, sizeof id->internal);
    std::memcpy(id->internal, address.text.data(), address.text.size());
    OpenAddresses::instance().add(std::move(address));
  });
}

tdmResult_t tdmCommInitRank(tdmComm_t* comm, int nranks, tdmUniqueId id, int rank,
                            const tdmConfig_t* config) {
  return guarded(nullptr, [&] { init_rank(comm, nranks, id, rank, config); });
}

tdmResult_t tdmCommInitFromEnvironment(tdmComm_t* comm, const tdmConfig_t* config) {
  return guarded(nullptr, [&] {
    require_not_null(comm, "comm");
    const auto environment = tandem::Environment::from_process();
    const auto identity = tandem::rendezvous::identify(environment);
    hand_over(tandem::comm::Communicator::create(
                  identity, options_of(config, environment, identity.distributed())),
              nullptr, comm);
  });
}

tdmResult_t tdmCommSplit(tdmComm_t comm, int color, int key, tdmComm_t* newcomm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    require_not_null(newcomm, "newcomm");
    require_no_group(comm, "tdmCommSplit");
    auto part = communicator.split(color, key);
    if (part) {
      hand_over(std::move(part), comm, newcomm);
    } else {
      *newcomm = nullptr;
    }
  });
}

tdmResult_t tdmCommShrink(tdmComm_t comm, const int* exclude, int exclude_count, tdmComm_t* newcomm,
                          const tdmConfig_t* config, int flags) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    require_not_null(newcomm, "newcomm");
    // A group left open by a failure does not keep the ranks from continuing.
    if (!communicator.life().failed()) require_no_group(comm, "tdmCommShrink");
    const auto options = shrink_options_of(exclude, exclude_count, config, flags);
    hand_over(communicator.shrink(options), nullptr, newcomm);
  });
}

tdmResult_t tdmCommFinalize(tdmComm_t comm) {
  return guarded(comm, [&] {
    communicator_of(comm);
    finalize(comm, "tdmCommFinalize");
  });
}

tdmResult_t tdmCommDestroy(tdmComm_t comm) {
  if (comm == nullptr) return tdmSuccess;
  const tdmResult_t result = guarded(comm, [&] {
    if (comm->finalized) return;
    // A group left open by a failure does not keep the communicator alive.
    if (comm->communicator->life().failed()) comm->group_depth = 0;
    finalize(comm, "tdmCommDestroy");
  });
  if (result == tdmInvalidUsage) return result;
  if (comm->parent != nullptr) --comm->parent->children;
  delete comm;
  return result;
}

tdmResult_t tdmCommAbort(tdmComm_t comm) {
  return guarded(comm,
                 [&] { communicator_of(comm).life().abort("its program called tdmCommAbort"); });
}

tdmResult_t tdmCommGetAsyncError(tdmComm_t comm, tdmResult_t* error) {
  return guarded(comm, [&] {
    require_not_null(error, "error");
    const std::string message = communicator_of(comm).life().failure_message();
    *error = message.empty() ? tdmSuccess : tdmRemoteError;
    if (message.empty()) return;
    const std::lock_guard lock(comm->error_mutex);
    comm->last_error = message;
  });
}

tdmResult_t tdmCommCount(tdmComm_t comm, int* count) {
  return guarded(comm, [&] {
    require_not_null(count, "count");
    *count = communicator_of(comm).size();
  });
}

tdmResult_t tdmCommUserRank(tdmComm_t comm, int* rank) {
  return guarded(comm, [&] {
    require_not_null(rank, "rank");
    *rank = communicator_of(comm).rank();
  });
}

tdmResult_t tdmMemAlloc(tdmComm_t comm, void** memory, size_t bytes) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    require_not_null(memory, "memory");
    require_no_group(comm, "tdmMemAlloc");
    comm->memory.reserve(comm->memory.size() + 1);
    comm->memory.push_back(mem_alloc(communicator, bytes));
    *memory = bytes == 0 ? nullptr : comm->memory.back().bytes().data();
  });
}

tdmResult_t tdmMemReplace(tdmComm_t comm, void* memory, size_t bytes, int* file) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    require_not_null(memory, "memory");
    require_not_null(file, "file");
    const EntryLock::Entry inside(*comm->entry_lock);
    require_no_group(comm, "tdmMemReplace");
    comm->memory.reserve(comm->memory.size() + 1);
    tandem::net::FileDescriptor made;
    comm->memory.push_back(
        mem_replace(communicator, {static_cast<std::byte*>(memory), bytes}, made));
    *file = made.release();
  });
}

tdmResult_t tdmMemFree(tdmComm_t comm, void* memory) {
  return guarded(comm, [&] {
    communicator_of(comm);
    if (memory == nullptr) return;
    const EntryLock::Entry inside(*comm->entry_lock);
    const auto found = std::find_if(comm->memory.begin(), comm->memory.end(), [&](const auto& one) {
      return !one.bytes().empty() && one.bytes().data() == memory;
    });
    if (found == comm->memory.end()) {
      tandem::raise<tandem::InvalidArgument>(
          "tdmMemFree: {} is not memory of tdmMemAlloc or tdmMemReplace of this communicator, or "
          "is freed already",
          memory);
    }
    comm->memory.erase(found);
  });
}
