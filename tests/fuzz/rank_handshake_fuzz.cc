// Bytes at the port at which rank 0 waits for the others, up to the end of the connection. Two jobs
// wait, one with a token. A peer without the job's secrets does not disturb it: rank 0 continues to
// wait, closes the connection and takes no more memory than a handshake may have.
//
// The first byte of an input decides whether the unauthenticated peer proves itself (odd: the
// following bytes are read as a handshake and a PeerInfo, and get the right proof; the rest is sent
// after it).
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "fuzz/waiting.h"
#include "support/handshakes.h"
#include "support/unauthenticated_peer.h"
#include "tandem/core/error.h"
#include "tandem/rendezvous/bootstrap.h"

namespace {

using namespace tandem;
using namespace std::chrono_literals;
using net::FileDescriptor;
namespace wire = rendezvous::wire;

// Rank 0 of a job of two.
class RankZero {
 public:
  explicit RankZero(const std::string& token) : identity_(identity_of(token)) {}

  bool ended() const { return waiting_.ended(); }
  bool accepted() const { return accepted_; }
  const std::string& token() const { return identity_.job_token; }

  int port() const { return identity_.master_port; }

 private:
  struct Stop {};
  static rendezvous::Identity identity_of(const std::string& token) {
    rendezvous::Identity identity;
    identity.local_size = identity.world_size = 2;
    identity.job_token = token;
    const FileDescriptor any = net::listen_tcp(true, 0);
    identity.master_port = net::local_port(any);
    return identity;
  }
  void wait(const std::atomic<bool>& stop) {
    rendezvous::BootstrapOptions options;
    options.timeout = 24h;
    options.check = [&stop] {
      if (stop) throw Stop();
    };
    try {
      rendezvous::BootstrapResult bootstrap_result =
          rendezvous::exchange_peer_info(identity_, "card", options);
      accepted_ = true;
      bootstrap_result.bootstrap_monitor->finish(net::Deadline(2s));
    } catch (const Error&) {  // the reason why the job cannot start
    } catch (const Stop&) {
    }
  }

  rendezvous::Identity identity_;
  std::atomic<bool> accepted_{false};
  fuzz::Waiting waiting_{[this](const std::atomic<bool>& stop) { wait(stop); }};
};

struct Introduction {
  std::string bytes;
  bool right = false;  // whether it is from the job's second rank
};

Introduction introduce(std::string_view input, const RankZero& rank, const FileDescriptor& at) {
  const bool proves = !input.empty() && (input.front() & 1) != 0;
  input.remove_prefix(input.empty() ? 0 : 1);
  if (input.size() < sizeof(wire::HandshakeMessage)) return {std::string(input), false};
  if (!proves) {  // with right checksums, so that it is looked at
    const auto rank_handshake = wire::read_as<wire::HandshakeMessage>(input);
    const std::string_view rest = input.substr(sizeof rank_handshake);
    return {std::string(wire::view_of(wire::sealed_handshake(
                rank_handshake, rest.substr(0, rank_handshake.peer_info_bytes)))) +
                std::string(rest),
            false};
  }
  const testing::ReceivedBytes challenge =
      testing::receive_bytes(at.get(), fuzz::kTimeout, sizeof(wire::Challenge));
  fuzz::require(challenge.bytes.size() == sizeof(wire::Challenge));
  const auto rank_handshake = wire::read_as<wire::HandshakeMessage>(input);
  input.remove_prefix(sizeof rank_handshake);
  const std::string_view peer_info = input.substr(0, rank_handshake.peer_info_bytes);
  const bool right = rank_handshake.magic == wire::kMagic &&
                     rank_handshake.version == wire::kVersion && rank_handshake.world_size == 2 &&
                     rank_handshake.rank == 1;
  return {
      testing::proved_handshake(rank_handshake, rank.token(),
                                wire::read_as<wire::Challenge>(challenge.bytes).nonce, peer_info) +
          std::string(input.substr(peer_info.size())),
      right && peer_info.size() <= wire::kMaxPeerInfoBytes};
}

void meet(std::unique_ptr<RankZero>& rank, const std::string& token, std::string_view input) {
  if (!rank || rank->ended()) rank = std::make_unique<RankZero>(token);
  const FileDescriptor unauthenticated_peer = fuzz::visit(*rank, rank->port());
  fuzz::require(static_cast<bool>(unauthenticated_peer));
  const bool proves = !input.empty() && (input.front() & 1) != 0;
  const Introduction introduction = introduce(input, *rank, unauthenticated_peer);
  testing::send_bytes(unauthenticated_peer.get(), introduction.bytes);
  ::shutdown(unauthenticated_peer.get(), SHUT_WR);
  fuzz::require(testing::receive_bytes(unauthenticated_peer.get(), fuzz::kTimeout).ended);
  if (proves) fuzz::settle(*rank, rank->port());
  fuzz::require(!rank->accepted() || introduction.right);
  fuzz::require(proves || !rank->ended());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Before the ranks, so that what gives them random numbers ends after them.
  [[maybe_unused]] static const net::Nonce first = net::make_nonce();
  static std::unique_ptr<RankZero> open;
  static std::unique_ptr<RankZero> closed;
  if (size > 65536) return 0;
  const fuzz::MemoryLimit limit(8 * size + (std::size_t{1} << 20));
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  meet(open, "", input);
  meet(closed, "a secret", input);
  return 0;
}
