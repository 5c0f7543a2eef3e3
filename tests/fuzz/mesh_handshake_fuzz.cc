// Bytes at a rank's port, or at its name among the sockets of the host, while the ranks connect to
// each other. A connection without the listener's secret is closed, and the rank continues to wait.
//
// The first byte of an input: 1: the handshake at its beginning gets the secret; 2: the input
// begins after a right handshake, of the kind in the next two bits; 16: at the name, not at the
// port.
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "fuzz/waiting.h"
#include "support/handshakes.h"
#include "support/unauthenticated_peer.h"
#include "tandem/comm/network/mesh.h"
#include "tandem/comm/network/peer_info.h"
#include "tandem/core/error.h"
#include "tandem/net/event_loop.h"

namespace {

using namespace tandem;
using namespace std::chrono_literals;
using net::ConnectionKind;
using net::FileDescriptor;
using net::RankHandshake;

struct Stop {};

class BootstrapMonitor final : public rendezvous::BootstrapMonitor {
 public:
  explicit BootstrapMonitor(const std::atomic<bool>& stop) : stop_(stop) {}
  void watch_hosts(std::chrono::milliseconds) override {}
  void add_to(net::EventLoop&) const override {}
  void check() override {
    if (stop_) throw Stop();
  }
  void finish(const net::Deadline&) override {}
  void give_up(std::string_view) noexcept override {}

 private:
  const std::atomic<bool>& stop_;
};

// Rank 0 of two on one host, which has both cards and waits for the connections of rank 1.
class RankZero {
 public:
  bool ended() const { return waiting_.ended(); }
  const comm::PeerInfo& peer_info() const { return peer_info_; }
  FileDescriptor visit(bool at_name) const {
    if (!at_name) return fuzz::visit(*this, peer_info_.port);
    const std::string name = fmt::format("tandem-{:016x}-0", peer_info_.listener);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    FileDescriptor unauthenticated_peer(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    while (::connect(unauthenticated_peer.get(), reinterpret_cast<sockaddr*>(&address), length) !=
           0)
      fuzz::require(errno == EINTR);
    return unauthenticated_peer;
  }

 private:
  void wait(const std::atomic<bool>& stop) {
    comm::MeshOptions options;
    options.timeout = 24h;
    options.loopback_only = true;
    const auto bootstrap = [&](const std::string& own) {
      const comm::PeerInfo zero = comm::read_peer_info(own, 0);
      comm::PeerInfo one = zero;
      one.secret = {1, 2};
      rendezvous::BootstrapResult bootstrap_result(
          {{own, ""}, {comm::write_peer_info(one), "127.0.0.1"}});
      bootstrap_result.bootstrap_monitor = std::make_unique<BootstrapMonitor>(stop);
      own_.set_value(zero);
      return bootstrap_result;
    };
    try {
      (void)comm::connect_mesh(0, 2, bootstrap, options);
    } catch (const Error&) {  // no rank came in time
    } catch (const Stop&) {
    }
  }

  std::promise<comm::PeerInfo> own_;
  std::future<comm::PeerInfo> known_ = own_.get_future();
  fuzz::Waiting waiting_{[this](const std::atomic<bool>& stop) { wait(stop); }};
  comm::PeerInfo peer_info_ = known_.get();
};

struct Words {
  std::string bytes;
  bool right = false;  // a handshake that this rank waits for
};

Words words_of(int flags, std::string_view input, const RankZero& rank) {
  const bool at_name = (flags & 16) != 0;
  const auto kind = static_cast<ConnectionKind>(flags >> 2 & 3);
  const auto fits = [&](ConnectionKind is) {
    return is <= ConnectionKind::kLocal && (is == ConnectionKind::kLocal) == at_name;
  };
  if ((flags & 2) != 0) {
    return {testing::connection_handshake(kind, rank.peer_info().secret, 1, 0) + std::string(input),
            fits(kind)};
  }
  if ((flags & 1) == 0 || input.size() < sizeof(RankHandshake)) return {std::string(input), false};
  auto rank_handshake = net::read_as<RankHandshake>(input);
  rank_handshake.secret = rank.peer_info().secret;
  rank_handshake = net::sealed(rank_handshake);
  const bool right = rank_handshake.magic == RankHandshake().magic && rank_handshake.rank == 1 &&
                     rank_handshake.target == 0 && fits(rank_handshake.kind);
  return {
      std::string(net::view_of(rank_handshake)) + std::string(input.substr(sizeof rank_handshake)),
      right};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<RankZero> rank;
  if (size == 0 || size > 65536) return 0;
  const fuzz::MemoryLimit limit(8 * size + (std::size_t{1} << 20));
  if (!rank || rank->ended()) rank = std::make_unique<RankZero>();
  const int flags = data[0];
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const Words words = words_of(flags, input.substr(1), *rank);
  const FileDescriptor unauthenticated_peer = rank->visit((flags & 16) != 0);
  fuzz::require(static_cast<bool>(unauthenticated_peer));
  testing::send_bytes(unauthenticated_peer.get(), words.bytes);
  ::shutdown(unauthenticated_peer.get(), SHUT_WR);
  if (words.right) {  // it keeps the connection, and may have all now
    fuzz::settle(*rank, rank->peer_info().port);
    return 0;
  }
  fuzz::require(testing::receive_bytes(unauthenticated_peer.get(), fuzz::kTimeout).ended);
  fuzz::require(!rank->ended());
  return 0;
}
