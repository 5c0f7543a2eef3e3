// Transport plugin over libfabric: reliable datagram endpoints with tagged messages (FI_EP_RDM,
// FI_TAGGED), one per rank.
//
// Tag layout: sender's rank << 2 | tag of the plugin interface. A receive names the sender in the
// tag and not by address, because not every provider can match by address.
//
// Provider: libfabric's own order of preference, restricted by FI_PROVIDER and the other FI_* as
// its users know them. Shared memory is used only if FI_PROVIDER requests it, because it does not
// reach other hosts. All ranks must select the same provider. Among the endpoints of an IP provider
// the plugin uses the one whose address is this host's on the route to the others.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/comm/plugins/support.h"

namespace tandem::comm::plugins {
namespace {

template <class T>
struct FidDeleter {
  void operator()(T* object) const { fi_close(&object->fid); }
};
template <class T>
using Fid = std::unique_ptr<T, FidDeleter<T>>;

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

// fi_context2 belongs to the provider during the operation, and must be the first member.
struct Operation {
  fi_context2 provider{};
  void* context = nullptr;
};

void check(long result, const char* what) {
  if (result < 0)
    throw std::runtime_error(std::string(what) + ": " + fi_strerror(static_cast<int>(-result)));
}

std::string numeric_address(const void* address) {
  const auto* any = static_cast<const sockaddr*>(address);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (any != nullptr && any->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(any)->sin_addr, text.data(),
              text.size());
  } else if (any != nullptr && any->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(any)->sin6_addr, text.data(),
              text.size());
  }
  return text.data();
}

bool is_ip(const fi_info& info) {
  return info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
         info.addr_format == FI_SOCKADDR_IN6;
}

std::string provider_of(const fi_info& info) { return info.fabric_attr->prov_name; }

Info query() {
  const Info hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = 0;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  fi_info* found = nullptr;
  const int result = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found);
  if (result == -FI_ENODATA)
    throw std::runtime_error(
        "no provider of libfabric has reliable datagrams with ordered tagged messages (look at "
        "fi_info -t FI_EP_RDM, and at FI_PROVIDER and FI_PROVIDER_PATH)");
  check(result, "fi_getinfo");
  return Info(found);
}

const fi_info* choose(const fi_info* all, const tandem_fabric_config& config) {
  const bool shared_memory = std::string(config.provider).find("shm") != std::string::npos;
  const fi_info* first = nullptr;
  for (const fi_info* info = all; info != nullptr; info = info->next) {
    if (!shared_memory && provider_of(*info).starts_with("shm")) continue;
    if (first == nullptr) first = info;
    if (provider_of(*info) != provider_of(*first) || !is_ip(*info)) continue;
    const bool chosen_interface = config.interface_name[0] != '\0' &&
                                  info->domain_attr->name != nullptr &&
                                  std::string(config.interface_name) == info->domain_attr->name;
    if (numeric_address(info->src_addr) == config.source_address || chosen_interface) return info;
  }
  if (first == nullptr)
    throw std::runtime_error("libfabric offers only shared memory; set FI_PROVIDER=shm to use it");
  return first;
}

class Fabric {
 public:
  explicit Fabric(const tandem_fabric_config& config)
      : rank_(config.rank), world_size_(config.world_size) {
    const Info all = query();
    info_.reset(fi_dupinfo(choose(all.get(), config)));
    fid_fabric* fabric = nullptr;
    check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    check(fi_domain(fabric_.get(), info_.get(), &domain, nullptr), "fi_domain");
    domain_.reset(domain);
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_UNSPEC;
    av_attr.count = static_cast<std::size_t>(world_size_);
    fid_av* av = nullptr;
    check(fi_av_open(domain_.get(), &av_attr, &av, nullptr), "fi_av_open");
    av_.reset(av);
    open_queue();
    fid_ep* endpoint = nullptr;
    check(fi_endpoint(domain_.get(), info_.get(), &endpoint, nullptr), "fi_endpoint");
    endpoint_.reset(endpoint);
    check(fi_ep_bind(endpoint, &av_->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(endpoint), "fi_enable");
    describe_itself();
  }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // The provider's name, 0, the endpoint's name.
  std::string address() const {
    std::string address = provider_of(*info_) + '\0';
    std::size_t length = 0;
    fi_getname(&endpoint_->fid, nullptr, &length);
    std::vector<char> name(length);
    check(fi_getname(&endpoint_->fid, name.data(), &length), "fi_getname");
    return address.append(name.data(), length);
  }

  void connect(const void* const* addresses, const std::size_t* bytes) {
    peers_.resize(static_cast<std::size_t>(world_size_));
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      const std::string theirs(static_cast<const char*>(addresses[peer]), bytes[peer]);
      const std::size_t end = theirs.find('\0');
      if (theirs.substr(0, end) != provider_of(*info_)) {
        throw std::runtime_error("rank " + std::to_string(peer) + " uses the provider " +
                                 theirs.substr(0, end) + ", rank " + std::to_string(rank_) + " " +
                                 provider_of(*info_) + "; set FI_PROVIDER on all hosts");
      }
      if (fi_av_insert(av_.get(), theirs.data() + end + 1, 1, &peers_[peer], 0, nullptr) != 1)
        throw std::runtime_error("fi_av_insert: no address of rank " + std::to_string(peer));
    }
  }

  // Members are closed in reverse order: the endpoint, which uses all others, first. After a
  // failure nothing is closed, because libfabric 1.17 crashes if an endpoint is closed in the
  // middle of a long message. The endpoint is not used any more, and providers that move data only
  // inside our calls (tcp, shm) touch no buffer then.
  bool close(bool in_order) { return in_order; }

  const char* describe() const { return description_.c_str(); }
  const char* last_error() const { return error_.c_str(); }
  std::size_t max_message_bytes() const { return info_->ep_attr->max_msg_size; }

  int send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, void* context) {
    Operation* operation = take(context);
    const auto result =
        fi_tsend(endpoint_.get(), data, bytes, nullptr, peers_[static_cast<std::size_t>(peer)],
                 tag_of(rank_, tag), &operation->provider);
    return started(result, operation, "fi_tsend");
  }

  int receive(int peer, std::uint32_t tag, void* data, std::size_t bytes, void* context) {
    Operation* operation = take(context);
    const auto result = fi_trecv(endpoint_.get(), data, bytes, nullptr, FI_ADDR_UNSPEC,
                                 tag_of(peer, tag), 0, &operation->provider);
    return started(result, operation, "fi_trecv");
  }

  int poll(tandem_fabric_completion* completions, int capacity) {
    std::array<fi_cq_entry, 16> entries;
    const auto room = std::min(entries.size(), static_cast<std::size_t>(capacity));
    const auto count = fi_cq_read(queue_.get(), entries.data(), room);
    if (count == -FI_EAVAIL) return read_error(completions);
    for (long i = 0; i < count; ++i) {
      completions[i] = {give_back(entries[static_cast<std::size_t>(i)].op_context), 0};
    }
    return count > 0 ? static_cast<int>(count) : 0;
  }

  int wait_descriptor() {
    if (descriptor_ < 0) return -1;
    fid* queue = &queue_->fid;
    return fi_trywait(fabric_.get(), &queue, 1) == FI_SUCCESS ? descriptor_ : -1;
  }

 private:
  static std::uint64_t tag_of(int sender, std::uint32_t tag) {
    return static_cast<std::uint64_t>(sender) << 2 | tag;
  }

  void open_queue() {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_CONTEXT;
    attr.size = 4096;
    attr.wait_obj = FI_WAIT_FD;
    fid_cq* queue = nullptr;
    // Some providers have no descriptor to sleep on.
    if (fi_cq_open(domain_.get(), &attr, &queue, nullptr) != 0) {
      attr.wait_obj = FI_WAIT_NONE;
      check(fi_cq_open(domain_.get(), &attr, &queue, nullptr), "fi_cq_open");
    } else if (fi_control(&queue->fid, FI_GETWAIT, &descriptor_) != 0) {
      descriptor_ = -1;
    }
    queue_.reset(queue);
  }

  void describe_itself() {
    const std::uint32_t version = fi_version();
    description_ = "libfabric " + std::to_string(FI_MAJOR(version)) + "." +
                   std::to_string(FI_MINOR(version)) + ", provider " + provider_of(*info_);
    const std::string address = is_ip(*info_) ? numeric_address(info_->src_addr) : "";
    if (!address.empty()) description_ += " at " + address;
  }

  Operation* take(void* context) {
    if (free_.empty()) {
      operations_.push_back(std::make_unique<Operation>());
      free_.push_back(operations_.back().get());
    }
    Operation* operation = free_.back();
    free_.pop_back();
    operation->context = context;
    return operation;
  }

  void* give_back(void* operation) {
    auto* own = static_cast<Operation*>(operation);
    free_.push_back(own);
    return own->context;
  }

  int started(long result, Operation* operation, const char* what) {
    if (result == 0) return TANDEM_FABRIC_OK;
    give_back(operation);
    if (result == -FI_EAGAIN) return TANDEM_FABRIC_AGAIN;
    error_ = std::string(what) + ": " + fi_strerror(static_cast<int>(-result));
    return TANDEM_FABRIC_FAILED;
  }

  int read_error(tandem_fabric_completion* completion) {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(queue_.get(), &entry, 0) != 1) return 0;
    error_ = std::string(fi_strerror(entry.err)) + ", " +
             fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, nullptr, 0);
    *completion = {give_back(entry.op_context), 1};
    return 1;
  }

  const int rank_;
  const int world_size_;
  Info info_;
  // Belongs to the provider until the endpoint is closed, therefore declared before it.
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> free_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_av> av_;
  Fid<fid_cq> queue_;
  Fid<fid_ep> endpoint_;
  int descriptor_ = -1;
  std::vector<fi_addr_t> peers_;
  std::string description_;
  std::string error_;
};

}  // namespace
}  // namespace tandem::comm::plugins

const tandem_transport_plugin* tandem_transport_plugin_table() {
  return tandem::comm::plugins::table_of<tandem::comm::plugins::Fabric>("ofi");
}
