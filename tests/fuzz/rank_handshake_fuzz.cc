// Bytes at the port at which rank 0 waits for the others, up to the end of the connection. Two jobs
// wait, one with a token. A peer without the job's secrets does not disturb it: rank 0 continues to
// wait, closes the connection and takes no more memory than a handshake may have.
//
// The first byte of an input: 1: the following bytes are a handshake and a peer info in a first
// frame (frames.h), which get the right proof; other frames follow. 2: the same without the proof.
// Otherwise the bytes come as they are.
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "fuzz/frames.h"
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

// The first frame, which is removed from `frames`; nothing if it is not a handshake.
std::optional<net::Frame> first_of(std::string_view& frames) {
  try {
    auto first = net::decode_frame(wire::kToRank0, frames);
    if (!first || first->payload.size() < sizeof(wire::HandshakeMessage)) return std::nullopt;
    frames.remove_prefix(net::kFrameHeadBytes + first->payload.size());
    return first;
  } catch (const Error&) {
    return std::nullopt;
  }
}

Introduction introduce(std::string_view input, const RankZero& rank, const FileDescriptor& at) {
  const int flag = input.empty() ? 0 : input.front();
  input.remove_prefix(input.empty() ? 0 : 1);
  const std::string frames = fuzz::as_frames(wire::kToRank0, input);
  if (flag == 2) return {frames, false};
  std::string_view rest = frames;
  const auto first = flag == 1 ? first_of(rest) : std::nullopt;
  if (!first) return {std::string(input), false};
  const testing::ReceivedBytes challenge =
      testing::receive_bytes(at.get(), fuzz::kTimeout, sizeof(wire::Challenge));
  fuzz::require(challenge.bytes.size() == sizeof(wire::Challenge));
  const wire::HandshakeMessage rank_handshake = wire::handshake_of(*first);
  const bool right = rank_handshake.version == wire::kVersion && rank_handshake.world_size == 2 &&
                     rank_handshake.rank == 1;
  return {testing::proved_handshake(
              rank_handshake, rank.token(), wire::read_as<wire::Challenge>(challenge.bytes).nonce,
              std::string_view(first->payload).substr(sizeof rank_handshake)) +
              std::string(rest),
          right};
}

void meet(std::unique_ptr<RankZero>& rank, const std::string& token, std::string_view input) {
  if (!rank || rank->ended()) rank = std::make_unique<RankZero>(token);
  const FileDescriptor unauthenticated_peer = fuzz::visit(*rank, rank->port());
  fuzz::require(static_cast<bool>(unauthenticated_peer));
  const bool proves = !input.empty() && input.front() == 1;
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
