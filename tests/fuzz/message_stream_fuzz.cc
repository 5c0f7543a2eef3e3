// What comes over a data connection: headers and messages, some with a receive that waits for them,
// some before theirs. Memory is taken for what really comes.
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/comm/failure/failure.h"
#include "tandem/comm/failure/monitor.h"
#include "tandem/comm/failure/path_watch.h"
#include "tandem/comm/network/stream_transport.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  int ends[2];
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  // A message that nobody waits for takes memory for what has come of it, a megabyte at a time.
  const fuzz::MemoryLimit limit(32 * size + (std::size_t{2} << 20));
  if (size > 65536 || ::socketpair(AF_UNIX, kType, 0, ends) != 0) return 0;
  rendezvous::FileDescriptor other(ends[1]);
  if (::send(other.get(), data, size, MSG_NOSIGNAL) < 0) return 0;
  other.reset();
  std::vector<comm::Peer> peers(2);
  peers[1].rank = 1;
  comm::Failure failure;
  comm::Monitor monitor(peers, std::vector<rendezvous::FileDescriptor>(2), failure, {});
  std::vector<rendezvous::FileDescriptor> sockets(2);
  sockets[1] = rendezvous::FileDescriptor(ends[0]);
  comm::StreamTransport transport(std::move(sockets), peers, 0, monitor, failure,
                                  std::make_shared<comm::DataPaths>());
  comm::Header expected;
  std::array<std::byte, 64> target;
  expected.count = expected.bytes = target.size();
  const auto first = transport.receive(1, expected, target);
  for (int i = 0; i < 10000 && !transport.closed(1) && !failure.is_set(); ++i) {
    transport.progress(std::chrono::microseconds(0));
  }
  fuzz::require(transport.closed(1) || failure.is_set());
  fuzz::require(!first->done || size >= sizeof expected + target.size());
  return 0;
}
