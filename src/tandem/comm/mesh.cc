#include "tandem/comm/mesh.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::comm {
namespace {

using rendezvous::Deadline;
using rendezvous::FileDescriptor;
using rendezvous::IoStatus;
using std::chrono::milliseconds;

// All ranks are known to be alive when they connect to each other; nobody needs long.
constexpr milliseconds kConnectPhase{60000};
// A stranger at the port may hold up the others this long.
constexpr milliseconds kHelloPatience{2000};

enum class Kind : std::uint32_t { kData = 0, kControl = 1, kLocal = 2 };

// The connecting rank proves with the listener's secret, which only the cards carry, that it belongs to the job.
struct MeshHello {
  std::uint32_t magic = 0x6d444e48;
  Kind kind = Kind::kData;
  std::uint64_t secret = 0;
  std::uint32_t rank = 0;
  std::uint32_t target = 0;
};

struct MeshWelcome {
  std::uint32_t magic = 0x6d444e57;
  std::uint32_t rank = 0;
};

struct Card {
  std::string host;
  std::string host_key;  // equal for ranks that reach each other through loopback and UNIX sockets
  std::string node_key;  // host_key and the tests' node id: ranks that share memory
  std::string pid_namespace;
  long pid = 0;
  int port = 0;
  std::uint64_t secret = 0;
  std::string addresses;  // separated by commas
};

std::string file_identity(const char* path) {
  struct stat status {};
  if (::stat(path, &status) != 0) return "?";
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

// One kernel (boot id) and one network namespace: there loopback and abstract UNIX sockets connect the processes. Two
// containers with networks of their own count as two hosts; two hosts with one name do not count as one.
std::string host_key() {
  std::string boot = read_file_if_exists("/proc/sys/kernel/random/boot_id").value_or("?");
  boot.erase(std::remove_if(boot.begin(), boot.end(), [](char c) { return c <= ' '; }), boot.end());
  return fmt::format("{}/{}/{}", rendezvous::host_name(), boot, file_identity("/proc/self/ns/net"));
}

std::uint64_t random_secret() {
  std::uint64_t secret = 0;
  if (::getrandom(&secret, sizeof secret, 0) != sizeof secret)
    throw io_error("cannot read", "getrandom", errno);
  return secret;
}

Card own_card(const MeshOptions& options, int port) {
  Card card;
  card.host = rendezvous::host_name();
  card.host_key = host_key();
  card.node_key = card.host_key + '/' + options.node_id;
  card.pid_namespace = file_identity("/proc/self/ns/pid");
  card.pid = ::getpid();
  card.port = port;
  card.secret = random_secret();
  if (!options.loopback_only) {
    for (const std::string& address : rendezvous::own_addresses(options.interface)) {
      card.addresses += (card.addresses.empty() ? "" : ",") + address;
    }
  }
  return card;
}

std::string write_card(const Card& card) {
  return fmt::format("1\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", card.host, card.host_key, card.node_key,
                     card.pid_namespace, card.pid, card.port, card.secret, card.addresses);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

Card read_card(const std::string& text, std::size_t rank) {
  const std::vector<std::string> lines = split(text, '\n');
  if (lines.size() != 9 || lines[0] != "1") {
    raise<CommError>(
        "rank {} introduced itself in a form this version does not know: run the same tandem "
        "everywhere",
        rank);
  }
  Card card;
  card.host = lines[1];
  card.host_key = lines[2];
  card.node_key = lines[3];
  card.pid_namespace = lines[4];
  card.pid = std::strtol(lines[5].c_str(), nullptr, 10);
  card.port = static_cast<int>(std::strtol(lines[6].c_str(), nullptr, 10));
  card.secret = std::strtoull(lines[7].c_str(), nullptr, 10);
  card.addresses = lines[8];
  return card;
}

// An abstract UNIX address: no file, gone with its listener.
socklen_t local_address(const Card& card, std::size_t rank, sockaddr_un& address) {
  const std::string name = fmt::format("tandem-{:016x}-{}", card.secret, rank);
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

FileDescriptor listen_local(const Card& card, std::size_t rank) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t length = local_address(card, rank, address);
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
        listener_(rendezvous::listen_tcp(options.loopback_only, 0)),
        own_(own_card(options, rendezvous::local_port(listener_))),
        local_listener_(listen_local(own_, rank_)) {}

  Mesh run(const rendezvous::Exchange& exchange) {
    const std::vector<rendezvous::Met> met = exchange(write_card(own_));
    TANDEM_CHECK(met.size() == size_, "{} cards for {} ranks", met.size(), size_);
    for (std::size_t i = 0; i < size_; ++i) {
      cards_.push_back(read_card(met[i].card, i));
      mesh_.peers.push_back(peer(i));
    }
    mesh_.data.resize(size_);
    mesh_.control.resize(size_);
    mesh_.local.resize(size_);
    const Deadline deadline(std::min(options_.timeout, kConnectPhase));
    for (std::size_t i = 0; i < rank_; ++i) {
      mesh_.data[i] = connect(i, Kind::kData, met[i].address, deadline);
      mesh_.control[i] = connect(i, Kind::kControl, met[i].address, deadline);
      if (shares_node(i)) mesh_.local[i] = connect_local(i);
    }
    accept_higher_ranks(deadline);
    return std::move(mesh_);
  }

 private:
  bool shares_node(std::size_t i) const { return cards_[i].node_key == own_.node_key; }

  Peer peer(std::size_t i) const {
    Peer peer;
    peer.rank = static_cast<int>(i);
    peer.host = cards_[i].host;
    peer.pid = static_cast<pid_t>(cards_[i].pid);
    peer.node_key = cards_[i].node_key;
    peer.pid_is_visible = cards_[i].host_key == own_.host_key &&
                          cards_[i].pid_namespace == own_.pid_namespace && peer.pid != ::getpid();
    return peer;
  }

  // The address through which rank 0 saw the other rank comes first: there is a route to it.
  std::vector<std::string> candidates(std::size_t i, const std::string& seen_at) const {
    std::vector<std::string> addresses;
    if (cards_[i].host_key == own_.host_key) addresses.emplace_back("127.0.0.1");
    const bool loopback = seen_at.rfind("127.", 0) == 0 || seen_at == "::1";
    if (!seen_at.empty() && !loopback && options_.interface.empty()) addresses.push_back(seen_at);
    for (std::string& address : split(cards_[i].addresses, ',')) {
      const bool known = std::find(addresses.begin(), addresses.end(), address) != addresses.end();
      if (!address.empty() && !known) addresses.push_back(std::move(address));
    }
    return addresses;
  }

  FileDescriptor connect(std::size_t i, Kind kind, const std::string& seen_at,
                         const Deadline& deadline) {
    const std::vector<std::string> addresses = candidates(i, seen_at);
    std::string failure = "it has no address in common with this host";
    do {
      for (const std::string& address : addresses) {
        FileDescriptor socket = rendezvous::connect_tcp(address, cards_[i].port, deadline, failure);
        if (socket && introduce(socket, i, kind, deadline, failure)) return socket;
      }
      std::this_thread::sleep_for(milliseconds(20));
    } while (!deadline.passed());
    raise<CommError>(
        "rank {} (host {}) could not connect to {} at port {} of {} within {:.1f} s: {}; check "
        "firewalls, or choose the network with GLOO_SOCKET_IFNAME",
        rank_, own_.host, mesh_.peers[i].describe(), cards_[i].port, fmt::join(addresses, ", "),
        deadline.elapsed_seconds(), failure);
  }

  // Another program may listen at the same address and port of another host: only the right rank welcomes us.
  bool introduce(const FileDescriptor& socket, std::size_t i, Kind kind, const Deadline& deadline,
                 std::string& failure) const {
    MeshHello hello;
    hello.kind = kind;
    hello.secret = cards_[i].secret;
    hello.rank = static_cast<std::uint32_t>(rank_);
    hello.target = static_cast<std::uint32_t>(i);
    MeshWelcome welcome;
    welcome.magic = 0;
    failure = "it did not answer";
    const bool answered =
        send_all(socket, std::as_bytes(std::span(&hello, 1)), deadline) == IoStatus::kDone &&
        receive_all(socket, std::as_writable_bytes(std::span(&welcome, 1)), deadline) ==
            IoStatus::kDone;
    return answered && welcome.magic == MeshWelcome().magic && welcome.rank == i;
  }

  FileDescriptor connect_local(std::size_t i) const {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    const socklen_t length = local_address(cards_[i], i, address);
    MeshHello hello;
    hello.kind = Kind::kLocal;
    hello.secret = cards_[i].secret;
    hello.rank = static_cast<std::uint32_t>(rank_);
    hello.target = static_cast<std::uint32_t>(i);
    const bool connected =
        socket && ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        ::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello;
    if (!connected) {
      raise<CommError>("rank {} could not reach {} of the same node through a UNIX socket: {}",
                       rank_, mesh_.peers[i].describe(), std::strerror(errno));
    }
    return socket;
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
      pollfd waits[2] = {{listener_.get(), POLLIN, 0}, {local_listener_.get(), POLLIN, 0}};
      ::poll(waits, 2, deadline.remaining_ms(milliseconds(1000)));
      while (FileDescriptor socket = rendezvous::accept_tcp(listener_, 0)) {
        welcome(std::move(socket), Deadline(kHelloPatience));
      }
      while (true) {
        FileDescriptor socket(
            ::accept4(local_listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) break;
        welcome(std::move(socket), Deadline(kHelloPatience));
      }
    }
  }

  void welcome(FileDescriptor socket, const Deadline& deadline) {
    MeshHello hello;
    hello.magic = 0;
    if (receive_all(socket, std::as_writable_bytes(std::span(&hello, 1)), deadline) !=
        IoStatus::kDone)
      return;
    const bool genuine = hello.magic == MeshHello().magic && hello.secret == own_.secret &&
                         hello.target == rank_ && hello.rank > rank_ && hello.rank < size_;
    if (!genuine) return;
    auto& sockets = hello.kind == Kind::kData      ? mesh_.data
                    : hello.kind == Kind::kControl ? mesh_.control
                                                   : mesh_.local;
    if (hello.kind != Kind::kLocal) {
      MeshWelcome answer;
      answer.rank = static_cast<std::uint32_t>(rank_);
      if (send_all(socket, std::as_bytes(std::span(&answer, 1)), deadline) != IoStatus::kDone)
        return;
    }
    sockets[hello.rank] = std::move(socket);
  }

  std::size_t rank_;
  std::size_t size_;
  MeshOptions options_;
  FileDescriptor listener_;
  Card own_;
  FileDescriptor local_listener_;
  std::vector<Card> cards_;
  Mesh mesh_;
};

}  // namespace

Mesh connect_mesh(int rank, int world_size, const rendezvous::Exchange& exchange,
                  const MeshOptions& options) {
  return Builder(rank, world_size, options).run(exchange);
}

}  // namespace tandem::comm
