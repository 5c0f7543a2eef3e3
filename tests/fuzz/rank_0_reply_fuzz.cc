// Bytes that a rank receives from the address of rank 0: a handshake, replies and the messages
// after them. A peer without the proof is not accepted as rank 0. The rank takes no more memory
// than the bytes it received.
//
// An input is frames (frames.h). Its first byte: 1: the rank has a token; 2: the proof of the first
// frame is right; 4: before them, the input has a challenge of its own; 8: the rest is sent as it
// is.
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "fuzz/frames.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "support/unauthenticated_peer.h"
#include "tandem/core/error.h"
#include "tandem/rendezvous/bootstrap.h"
#include "tandem/rendezvous/bootstrap_wire.h"

namespace {

using namespace tandem;
using namespace std::chrono_literals;
using net::FileDescriptor;
namespace wire = rendezvous::wire;

constexpr std::size_t kRanks = 3;
// The frame of the rank, whose peer info is "card".
constexpr std::size_t kHandshakeBytes = net::kFrameHeadBytes + sizeof(wire::HandshakeMessage) + 4;
// The kind, the length and the proof of a reply in an input.
constexpr std::size_t kFirstBytes = 3 + sizeof(net::ProofCode);

// Rank 1 of a job of three, which looks for rank 0 at `port`. True when it has found it.
bool join(int port, const std::string& token) {
  rendezvous::Identity identity;
  identity.rank = identity.local_rank = 1;
  identity.local_size = identity.world_size = kRanks;
  identity.master_port = port;
  identity.job_token = token;
  rendezvous::BootstrapOptions options;
  options.timeout = fuzz::kTimeout;
  try {
    rendezvous::BootstrapResult bootstrap_result =
        rendezvous::exchange_peer_info(identity, "card", options);
    fuzz::require(bootstrap_result.met.size() == kRanks);
    try {
      bootstrap_result.bootstrap_monitor->finish(net::Deadline(1s));
    } catch (const Error&) {  // the job does not start after all
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

// `input` with the proof of a peer that knows the token.
std::string proved(std::string_view input, const std::string& token, const net::Nonce& challenge,
                   std::string_view rank_handshake) {
  const net::FrameProtocol protocol = wire::from_rank_0(kRanks);
  std::string frames = fuzz::as_frames(protocol, input);
  net::FrameReader reader(protocol, frames);
  const auto first = reader.take();
  if (!first || first->payload.size() < sizeof(net::ProofCode)) return frames;
  const std::string_view text = std::string_view(first->payload).substr(sizeof(net::ProofCode));
  const auto nonce =
      wire::handshake_of(net::FrameReader(wire::kToRank0, rank_handshake).take().value()).nonce;
  const net::ProofCode proof =
      wire::reply_proof(token, challenge, nonce, static_cast<wire::Kind>(first->kind), text);
  return net::encode_frame(protocol, first->kind, {net::view_of(proof), text}) +
         frames.substr(net::kFrameHeadBytes + first->payload.size());
}

// Returns whether the rank was given a right proof.
bool pose_as_rank_0(const FileDescriptor& rank, std::string_view input, const std::string& token,
                    int flags) {
  wire::Challenge challenge;
  challenge.has_token = token.empty() ? 0 : 1;
  if ((flags & 4) != 0 && input.size() >= sizeof challenge) {
    challenge = wire::read_as<wire::Challenge>(input);
    input.remove_prefix(sizeof challenge);
  }
  challenge = wire::sealed(challenge);
  testing::send_bytes(rank.get(), wire::view_of(challenge));
  const bool proves = (flags & 10) == 2 && input.size() >= kFirstBytes;
  std::string reply =
      (flags & 8) != 0 ? std::string(input) : fuzz::as_frames(wire::from_rank_0(kRanks), input);
  if (proves) {
    const std::string rank_handshake =
        testing::receive_bytes(rank.get(), fuzz::kTimeout, kHandshakeBytes).bytes;
    if (rank_handshake.size() < kHandshakeBytes) return false;  // the rank refuses the challenge
    reply = proved(input, token, challenge.nonce, rank_handshake);
  }
  testing::send_bytes(rank.get(), reply);
  ::shutdown(rank.get(), SHUT_WR);
  fuzz::require(testing::receive_bytes(rank.get(), fuzz::kTimeout).ended);
  return proves;
}

// A rank that learned that its handshake arrived damaged comes again.
void refuse_next(const FileDescriptor& listener) {
  const FileDescriptor rank = net::accept_tcp(listener, 1);
  if (!rank) return;
  testing::send_bytes(rank.get(), std::string(wire::view_of(wire::sealed(wire::Challenge()))) +
                                      net::encode_frame(wire::from_rank_0(kRanks), wire::kCommError,
                                                        {net::view_of(net::ProofCode{})}));
  ::shutdown(rank.get(), SHUT_WR);
  fuzz::require(testing::receive_bytes(rank.get(), fuzz::kTimeout).ended);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const FileDescriptor listener = net::listen_tcp(true, 0);
  if (size == 0 || size > 65536) return 0;
  const fuzz::MemoryLimit limit(8 * size + (std::size_t{1} << 20));
  const int flags = data[0];
  const std::string token = (flags & 1) != 0 ? "a secret" : "";
  bool found = false;
  std::atomic<bool> ended{false};
  std::thread rank([&] {
    found = join(net::local_port(listener), token);
    ended = true;
  });
  FileDescriptor visitor;
  for (int i = 0; i < 1000 && !visitor; ++i) visitor = net::accept_tcp(listener, 1000);
  fuzz::require(static_cast<bool>(visitor));
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool proved = pose_as_rank_0(visitor, input.substr(1), token, flags);
  visitor.reset();
  while (!ended) refuse_next(listener);
  rank.join();
  fuzz::require(proved || !found);
  return 0;
}
