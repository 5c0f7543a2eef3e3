// Bytes of a data connection: headers and messages, some with a receive that waits for them, some
// before theirs. Memory is taken for what comes. An input is headers and bytes. It comes once as it
// is, and once in frames with right checksums.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/comm/failure/failure.h"
#include "tandem/comm/failure/monitor.h"
#include "tandem/comm/failure/path_watch.h"
#include "tandem/comm/network/stream_transport.h"
#include "tandem/net/plain_bytes.h"

namespace {

using namespace tandem;

std::string in_frames(std::string_view input) {
  std::string frames;
  for (std::uint32_t number = 0; input.size() >= sizeof(comm::Header); ++number) {
    comm::FrameHead head;
    head.header = net::read_as<comm::Header>(input);
    head.number = number;
    head.checksum = head.sum();
    input.remove_prefix(sizeof head.header);
    const std::string_view bytes = input.substr(0, head.header.bytes);
    input.remove_prefix(bytes.size());
    frames += net::view_of(head);
    frames += bytes;
    if (bytes.empty() || bytes.size() < head.header.bytes) continue;
    const std::uint32_t checksum = crc32c(bytes, head.checksum);
    frames += net::view_of(checksum);
  }
  return frames.append(input);
}

void receive(std::string_view input) {
  int ends[2];
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  if (::socketpair(AF_UNIX, kType, 0, ends) != 0) return;
  net::FileDescriptor other(ends[1]);
  if (::send(other.get(), input.data(), input.size(), MSG_NOSIGNAL) < 0) {
    ::close(ends[0]);
    return;
  }
  other.reset();
  std::vector<comm::Peer> peers(2);
  peers[1].rank = 1;
  comm::Failure failure;
  comm::Monitor monitor(peers, std::vector<net::FileDescriptor>(2), failure, {});
  std::vector<net::FileDescriptor> sockets(2);
  sockets[1] = net::FileDescriptor(ends[0]);
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
  fuzz::require(!first->done || input.size() >= sizeof(comm::FrameHead) + target.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  // A message that no receive waits for takes memory for what has come of it, a megabyte at a time.
  const fuzz::MemoryLimit limit(32 * size + (std::size_t{2} << 20));
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  receive(input);
  receive(in_frames(input));
  return 0;
}
