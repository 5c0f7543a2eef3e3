#include "tandem/comm/network/mesh.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tandem/comm/network/peer_info.h"
#include "tandem/core/descriptors.h"
#include "tandem/core/disagreement.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/random_bits.h"
#include "tandem/net/connect.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/interfaces.h"
#include "tandem/net/pending_connections.h"
#include "tandem/net/rank_handshake.h"

namespace tandem::comm {
namespace {

using net::ConnectionKind;
using net::Deadline;
using net::FileDescriptor;
using net::IoStatus;
using net::is_greeting_of;
using net::RankChallenge;
using net::RankHandshake;
using net::read_as;
using net::Secret;
using net::view_of;
using std::chrono::milliseconds;

// All ranks are known to be alive when they connect to each other; none needs long.
constexpr milliseconds kConnectPhase{60000};
// Timeout for the handshake of a connection; unauthenticated peers at the port hold up no rank
// meanwhile.
constexpr milliseconds kIntroduction{10000};
// Timeout for the message with the reason why a rank is gone.
constexpr milliseconds kReason{2000};

// Descriptors: a data and a control connection to every rank; for the ranks of this node also a
// UNIX socket, a doorbell, a pidfd, and, while memory is shared, its file.
constexpr std::size_t kPerPeer = 2;
constexpr std::size_t kPerNeighbour = 4;
// Listeners, events, this rank's own memory.
constexpr std::size_t kOfTheRank = 12;

std::string file_identity(const char* path) {
  struct stat status {};
  if (::stat(path, &status) != 0) return "?";
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

// One kernel (boot id) and one network namespace: there loopback and abstract UNIX sockets connect
// the processes. Two containers with separate networks count as two hosts; two hosts with one name
// do not count as one.
std::string host_key() {
  std::string boot = read_file_if_exists("/proc/sys/kernel/random/boot_id").value_or("?");
  boot.erase(std::remove_if(boot.begin(), boot.end(), [](char c) { return c <= ' '; }), boot.end());
  return fmt::format("{}/{}/{}", net::host_name(), boot, file_identity("/proc/self/ns/net"));
}

PeerInfo own_peer_info(const MeshOptions& options, int port) {
  PeerInfo peer_info;
  peer_info.host = net::host_name();
  peer_info.host_key = host_key();
  peer_info.node_key = peer_info.host_key + '/' + options.node_id;
  peer_info.pid_namespace = file_identity("/proc/self/ns/pid");
  peer_info.pid = ::getpid();
  peer_info.port = port;
  peer_info.listener = random_bits();
  peer_info.secret = {random_bits(), random_bits()};
  peer_info.settings = options.settings;
  if (!options.loopback_only) peer_info.addresses = net::own_addresses(options.interface);
  return peer_info;
}

// An abstract UNIX address: it has no file and ends with its listener. Every user of the machine
// can read it (/proc/net/unix).
socklen_t local_address(const PeerInfo& peer_info, std::size_t rank, sockaddr_un& address) {
  const std::string name = fmt::format("tandem-{:016x}-{}", peer_info.listener, rank);
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

FileDescriptor listen_local(const PeerInfo& peer_info, std::size_t rank) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t length = local_address(peer_info, rank, address);
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(socket.get(), 1024) != 0) {
    throw io_error("cannot listen at a UNIX socket for the ranks of this node", "socket", errno);
  }
  return socket;
}

class Builder {
 public:
  Builder(int rank, int world_size, const MeshOptions& options)
      : rank_(static_cast<std::size_t>(rank)),
        size_(static_cast<std::size_t>(world_size)),
        options_(options),
        listener_(net::listen_tcp(options.loopback_only, 0)),
        own_(own_peer_info(options, net::local_port(listener_))),
        local_listener_(listen_local(own_, rank_)),
        pending_(kIntroduction, 4 * size_ + 256) {
    challenge_.rank = static_cast<std::uint32_t>(rank);
    challenge_.listener = own_.listener;
  }

  Mesh run(const rendezvous::Bootstrap& bootstrap) {
    rendezvous::BootstrapResult bootstrap_result = bootstrap(write_peer_info(own_));
    bootstrap_monitor_ = bootstrap_result.bootstrap_monitor.get();
    TANDEM_CHECK(bootstrap_result.met.size() == size_, "peer info of {} ranks, expected {}",
                 bootstrap_result.met.size(), size_);
    const Deadline deadline(std::min(options_.timeout, kConnectPhase));
    if (bootstrap_monitor_ != nullptr) bootstrap_monitor_->watch_hosts(options_.host_timeout);
    try {
      connect_all(bootstrap_result.met, deadline);
    } catch (const Error& error) {
      if (bootstrap_monitor_ != nullptr) bootstrap_monitor_->give_up(error.what());
      throw;
    }
    // A rank may end as soon as it is done: no rank leaves before all are connected.
    if (bootstrap_monitor_ != nullptr) bootstrap_monitor_->finish(deadline);
    mesh_.membership = std::move(bootstrap_result.membership);
    mesh_.network = describe_network();
    for (std::size_t i = 0; i < size_; ++i) {
      mesh_.listen_addresses.push_back({candidates(i, bootstrap_result.met[i].address),
                                        peer_infos_[i].port, peer_infos_[i].listener,
                                        peer_infos_[i].secret});
    }
    mesh_.listener = std::move(listener_);
    return std::move(mesh_);
  }

 private:
  void connect_all(const std::vector<rendezvous::Met>& met, const Deadline& deadline) {
    for (std::size_t i = 0; i < size_; ++i) {
      peer_infos_.push_back(read_peer_info(met[i].peer_info, i));
      mesh_.peers.push_back(peer(i));
    }
    reserve_for_neighbours();
    require_equal_settings();
    mesh_.data.resize(size_);
    mesh_.control.resize(size_);
    mesh_.local.resize(size_);
    for (std::size_t i = 0; i < rank_; ++i) {
      mesh_.data[i] = connect(i, ConnectionKind::kData, met[i].address, deadline);
      mesh_.control[i] = connect(i, ConnectionKind::kControl, met[i].address, deadline);
      if (shares_node(i)) mesh_.local[i] = connect_local(i);
    }
    accept_higher_ranks(deadline);
  }

  // Only the peer info shows how many ranks are on this node.
  void reserve_for_neighbours() const {
    std::size_t neighbours = 0;
    for (std::size_t i = 0; i < size_; ++i) neighbours += i != rank_ && shares_node(i) ? 1 : 0;
    reserve_descriptors(
        kOfTheRank + kPerPeer * (size_ - 1) + kPerNeighbour * neighbours,
        fmt::format("rank {} of {} ({} on this host)", rank_, size_, neighbours + 1));
  }

  void require_equal_settings() const {
    std::vector<std::string> settings;
    for (const PeerInfo& peer_info : peer_infos_) settings.push_back(peer_info.settings);
    const std::string differences = describe_disagreement(settings, [this](int rank) {
      return mesh_.peers[static_cast<std::size_t>(rank)].describe();
    });
    if (differences.empty()) return;
    raise<ConfigError>(
        "the ranks disagree on the communication; start all ranks with the same settings:\n  {}",
        differences);
  }

  bool shares_node(std::size_t i) const { return peer_infos_[i].node_key == own_.node_key; }

  Peer peer(std::size_t i) const {
    Peer peer;
    peer.rank = static_cast<int>(i);
    peer.host = peer_infos_[i].host;
    peer.pid = peer_infos_[i].pid;
    peer.node_key = peer_infos_[i].node_key;
    peer.port = peer_infos_[i].port;
    peer.pid_is_visible = peer_infos_[i].host_key == own_.host_key &&
                          peer_infos_[i].pid_namespace == own_.pid_namespace &&
                          peer.pid != ::getpid();
    return peer;
  }

  // The address through which rank 0 saw the other rank comes first: the route between the two
  // works.
  std::vector<std::string> candidates(std::size_t i, const std::string& seen_at) const {
    std::vector<std::string> addresses;
    const auto add = [&](const std::string& address) {
      const bool known = std::find(addresses.begin(), addresses.end(), address) != addresses.end();
      if (!address.empty() && !known) addresses.push_back(address);
    };
    if (peer_infos_[i].host_key == own_.host_key) add("127.0.0.1");
    const std::vector<std::string>& advertised = peer_infos_[i].addresses;
    const bool loopback = seen_at.rfind("127.", 0) == 0 || seen_at == "::1";
    // Interfaces named by the user keep the order in which they were named.
    const bool excluding = options_.interface.rfind('^', 0) == 0;
    const bool is_advertised =
        std::find(advertised.begin(), advertised.end(), seen_at) != advertised.end();
    const bool wanted = options_.interface.empty() || (excluding && is_advertised);
    if (!loopback && wanted) add(seen_at);
    for (const std::string& address : advertised) add(address);
    return addresses;
  }

  FileDescriptor connect(std::size_t i, ConnectionKind kind, const std::string& seen_at,
                         const Deadline& deadline) {
    const std::vector<std::string> addresses = candidates(i, seen_at);
    net::Handshake handshake;
    handshake.answer_bytes = sizeof(RankChallenge);
    handshake.accept = [&](const std::string& answer) {
      return is_greeting_of(answer, i, peer_infos_[i].listener);
    };
    handshake.check = [this] {
      if (bootstrap_monitor_ != nullptr) bootstrap_monitor_->check();
    };
    std::string failure;
    do {
      net::Connected found =
          net::connect_first(addresses, peer_infos_[i].port, handshake, deadline, failure);
      const RankHandshake rank_handshake = handshake_to(i, kind);
      if (found.socket && send_all(found.socket, std::as_bytes(std::span(&rank_handshake, 1)),
                                   deadline) == IoStatus::kDone) {
        return std::move(found.socket);
      }
      if (bootstrap_monitor_ != nullptr) bootstrap_monitor_->check();
      std::this_thread::sleep_for(milliseconds(20));
    } while (!deadline.passed());
    raise<CommError>(
        "rank {} (host {}) could not connect to {} at port {} of {} within {:.1f} s: {}; check "
        "firewalls, or choose the network with TANDEM_IFNAME",
        rank_, own_.host, mesh_.peers[i].describe(), peer_infos_[i].port,
        fmt::join(addresses, ", "), deadline.elapsed_seconds(), failure);
  }

  RankHandshake handshake_to(std::size_t i, ConnectionKind kind) const {
    RankHandshake rank_handshake;
    rank_handshake.kind = kind;
    rank_handshake.secret = peer_infos_[i].secret;
    rank_handshake.rank = static_cast<std::uint32_t>(rank_);
    rank_handshake.target = static_cast<std::uint32_t>(i);
    return net::sealed(rank_handshake);
  }

  // Rank i listened before it sent its address. If it no longer listens, it has given up, and the
  // message with the reason is on its way here.
  FileDescriptor connect_local(std::size_t i) {
    sockaddr_un address;
    const socklen_t length = local_address(peer_infos_[i], i, address);
    const RankHandshake rank_handshake = handshake_to(i, ConnectionKind::kLocal);
    const Deadline deadline(kReason);
    while (true) {
      FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (socket && ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
          net::is_of_this_user(socket) &&
          ::send(socket.get(), &rank_handshake, sizeof rank_handshake, MSG_NOSIGNAL) ==
              sizeof rank_handshake) {
        return socket;
      }
      const int error = errno;
      if (out_of_descriptors(error)) {
        raise_out_of_descriptors("cannot connect to " + mesh_.peers[i].describe(), error);
      }
      if (bootstrap_monitor_ != nullptr) bootstrap_monitor_->check();
      if (bootstrap_monitor_ == nullptr || deadline.passed()) {
        raise<CommError>("rank {} could not reach {} of the same node through a UNIX socket: {}",
                         rank_, mesh_.peers[i].describe(), std::strerror(error));
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  std::string missing() const {
    std::string text;
    for (std::size_t i = rank_ + 1; i < size_; ++i) {
      if (complete(i)) continue;
      text += fmt::format("{}{}", text.empty() ? "" : ", ", mesh_.peers[i].describe());
    }
    return text;
  }

  bool complete(std::size_t i) const {
    return mesh_.data[i] && mesh_.control[i] && (mesh_.local[i] || !shares_node(i));
  }

  void accept_higher_ranks(const Deadline& deadline) {
    while (!missing().empty()) {
      if (deadline.passed()) {
        raise<CommError>("rank {} (host {}) waited {:.1f} s for connections from {}", rank_,
                         own_.host, deadline.elapsed_seconds(), missing());
      }
      net::EventLoop loop;
      pending_.add_listener(listener_, loop);
      pending_.add_listener(local_listener_, loop);
      pending_.add_to(loop);
      if (bootstrap_monitor_ != nullptr) bootstrap_monitor_->add_to(loop);
      loop.until(deadline);
      loop.run_once(milliseconds(500));
      if (bootstrap_monitor_ != nullptr) bootstrap_monitor_->check();
      pending_.accept_from(listener_, [&] { return std::string(view_of(challenge_)); });
      pending_.accept_from(local_listener_, [] { return std::string(); });
      const auto wanted = [](const std::string&) { return sizeof(RankHandshake); };
      while (auto connection = pending_.take_complete(wanted)) welcome(std::move(*connection));
    }
  }

  void welcome(net::PendingConnection connection) {
    const auto rank_handshake = read_as<RankHandshake>(connection.received);
    if (net::is_damaged(rank_handshake, own_.secret)) {
      raise<CommError>(
          "the link from a rank at {} to rank {} (host {}) is damaged: the first frame of a "
          "connection arrived with a wrong checksum; check the network cards, cables and switches "
          "between these two hosts",
          net::peer_address(connection.socket), rank_, own_.host);
    }
    const bool genuine =
        rank_handshake.magic == RankHandshake().magic && net::is_whole(rank_handshake) &&
        rank_handshake.secret == own_.secret && rank_handshake.target == rank_ &&
        rank_handshake.rank > rank_ && rank_handshake.rank < size_ &&
        rank_handshake.kind <= ConnectionKind::kLocal &&
        (rank_handshake.kind == ConnectionKind::kLocal) == net::is_local(connection.socket);
    if (!genuine) return;
    if (rank_handshake.kind == ConnectionKind::kLocal && !net::is_of_this_user(connection.socket))
      return;
    auto& sockets = rank_handshake.kind == ConnectionKind::kData      ? mesh_.data
                    : rank_handshake.kind == ConnectionKind::kControl ? mesh_.control
                                                                      : mesh_.local;
    sockets[rank_handshake.rank] = std::move(connection.socket);
  }

  // "eth0 (10.0.0.3)": the interface through which data for other hosts leaves this one.
  std::string describe_network() const {
    std::vector<std::string> ways;
    for (std::size_t i = 0; i < size_; ++i) {
      if (!mesh_.data[i] || peer_infos_[i].host_key == own_.host_key) continue;
      const std::string way = fmt::format("{} ({})", net::own_interface(mesh_.data[i]),
                                          net::own_address(mesh_.data[i]));
      if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(way);
    }
    return fmt::format("{}", fmt::join(ways, ", "));
  }

  std::size_t rank_;
  std::size_t size_;
  MeshOptions options_;
  FileDescriptor listener_;
  PeerInfo own_;
  FileDescriptor local_listener_;
  net::PendingConnections pending_;
  RankChallenge challenge_;
  rendezvous::BootstrapMonitor* bootstrap_monitor_ = nullptr;
  std::vector<PeerInfo> peer_infos_;
  Mesh mesh_;
};

}  // namespace

Mesh connect_mesh(int rank, int world_size, const rendezvous::Bootstrap& bootstrap,
                  const MeshOptions& options) {
  // Before any rank waits for this one. Rank 0 uses separate connections for the bootstrap.
  const auto peers = static_cast<std::size_t>(world_size - 1);
  reserve_descriptors(kOfTheRank + kPerPeer * peers + (rank == 0 ? peers : 1),
                      fmt::format("rank {} of {}", rank, world_size));
  return Builder(rank, world_size, options).run(bootstrap);
}

}  // namespace tandem::comm
