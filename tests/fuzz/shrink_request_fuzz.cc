// Bytes at the port of the shrink agreement, where surviving ranks connect. A peer without the
// listener's secret does not disturb them: the host continues to wait and closes the connection.
//
// The first byte of an input: 1: the handshake at its beginning gets the secret; 2: the input
// begins after a right handshake; 4: there it is frames (frames.h).
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/frames.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "fuzz/waiting.h"
#include "support/handshakes.h"
#include "support/unauthenticated_peer.h"
#include "tandem/core/error.h"
#include "tandem/rendezvous/shrink_agreement.h"

namespace {

using namespace tandem;
using namespace std::chrono_literals;
using net::ConnectionKind;
using net::FileDescriptor;
using net::RankHandshake;

constexpr net::Secret kSecret{1234567, 7654321};
// The frames of shrink_agreement.cc.
constexpr net::FrameProtocol kRequests{"the shrink agreement", 0x6d444e41, 5, 60000};

// All live, and nothing else is known, until `stop`.
class ShrinkPeers final : public rendezvous::ShrinkPeers {
 public:
  explicit ShrinkPeers(const std::atomic<bool>& stop) : stop_(stop) {}
  std::string describe(int rank) const override { return fmt::format("rank {}", rank); }
  bool gone(int) const override { return stop_; }
  std::string why_expelled() const override { return "the end"; }
  void expel(int, const std::string&) override { fuzz::require(false); }
  bool may_leave_behind() const override { return false; }

 private:
  const std::atomic<bool>& stop_;
};

// Rank 0 of three, which waits for the two others.
class Host {
 public:
  bool ended() const { return waiting_.ended(); }
  int port() const { return net::local_port(listener_); }

 private:
  void wait(const std::atomic<bool>& stop) {
    ShrinkPeers peers(stop);
    const std::vector<net::ListenAddress> listen_addresses(3, {{"127.0.0.1"}, 1, 77, kSecret});
    rendezvous::ShrinkAgreementOptions options;
    options.members = {0, 1, 2};
    options.loopback_only = true;
    rendezvous::ShrinkAgreement shrink_agreement(listener_, listen_addresses, peers, options);
    try {
      (void)shrink_agreement.meet(net::Deadline(24h));
      fuzz::require(stop);    // one unauthenticated peer is never two ranks
    } catch (const Error&) {  // the ranks disagree, or the end
    }
  }

  FileDescriptor listener_ = net::listen_tcp(true, 0);
  fuzz::Waiting waiting_{[this](const std::atomic<bool>& stop) { wait(stop); }};
};

std::string with_secret(std::string_view input) {
  auto rank_handshake = net::read_as<RankHandshake>(input);
  rank_handshake.secret = kSecret;
  return std::string(net::view_of(net::sealed(rank_handshake))) +
         std::string(input.substr(sizeof rank_handshake));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<Host> host;
  if (size == 0 || size > 65536) return 0;
  const fuzz::MemoryLimit limit(8 * size + (std::size_t{1} << 20));
  if (!host || host->ended()) host = std::make_unique<Host>();
  std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool follows = (data[0] & 2) != 0;
  const bool knows = (data[0] & 1) != 0 && input.size() >= sizeof(RankHandshake);
  if ((data[0] & 4) != 0) input = fuzz::as_frames(kRequests, input);
  if (follows)
    input = testing::connection_handshake(ConnectionKind::kShrinkAgreement, kSecret, 1, 0) + input;
  if (!follows && knows) input = with_secret(input);
  const FileDescriptor unauthenticated_peer = fuzz::visit(*host, host->port());
  fuzz::require(static_cast<bool>(unauthenticated_peer));
  testing::send_bytes(unauthenticated_peer.get(), input);
  ::shutdown(unauthenticated_peer.get(), SHUT_WR);
  fuzz::require(testing::receive_bytes(unauthenticated_peer.get(), fuzz::kTimeout).ended);
  if (follows || knows)
    fuzz::settle(*host, host->port());
  else
    fuzz::require(!host->ended());
  return 0;
}
