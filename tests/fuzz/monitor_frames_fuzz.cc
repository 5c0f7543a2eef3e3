// Bytes of a control connection: goodbyes, failures, heartbeats, expulsions. Its end is noticed
// whatever came before. The first byte of an input: 1: frames with right checksums (frames.h),
// otherwise the bytes as they are.
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "fuzz/frames.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/comm/failure/control_message.h"
#include "tandem/comm/failure/failure.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/comm/failure/monitor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  using Clock = std::chrono::steady_clock;
  int ends[2];
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  // A frame has a text of 4 KB at most; up to 64 KB are kept as received.
  const fuzz::MemoryLimit limit(16 * size + (std::size_t{256} << 10));
  if (size == 0 || size > 65536 || ::socketpair(AF_UNIX, kType, 0, ends) != 0) return 0;
  net::FileDescriptor peer(ends[1]);
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string bytes =
      data[0] == 1 ? fuzz::as_frames(comm::kControlProtocol, input) : std::string(input);
  if (::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return 0;
  std::vector<comm::Peer> peers(2);
  peers[1].rank = 1;
  comm::Failure failure;
  const comm::FlightRecorder recorder;
  std::vector<net::FileDescriptor> control(2);
  control[1] = net::FileDescriptor(ends[0]);
  comm::Monitor::Options options;
  options.recorder = &recorder;
  comm::Monitor monitor(peers, std::move(control), failure, options);
  peer.reset();
  const auto end = Clock::now() + std::chrono::seconds(8);
  while (!monitor.gone(1) && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  fuzz::require(monitor.gone(1));
  (void)monitor.describe_laggard();
  return 0;
}
