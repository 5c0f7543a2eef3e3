// Bytes of a control connection: goodbyes, failures, heartbeats, expulsions. Its end is noticed
// whatever came before. An input is heads without checksums, each with its text; it comes with
// right checksums, or, where it begins with another odd byte than a head does, as it is.
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/comm/failure/control_header.h"
#include "tandem/comm/failure/failure.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/comm/failure/monitor.h"

namespace {

std::string with_checksums(std::string_view input) {
  using tandem::comm::ControlHeader;
  constexpr std::size_t kGiven = offsetof(ControlHeader, other);
  std::string bytes;
  while (input.size() >= kGiven) {
    ControlHeader header;
    std::memcpy(static_cast<void*>(&header), input.data(), kGiven);
    input.remove_prefix(kGiven);
    const std::string_view text = input.substr(0, header.bytes);
    input.remove_prefix(text.size());
    header.text_checksum = tandem::crc32c(text);
    header.checksum = header.sum();
    bytes.append(reinterpret_cast<const char*>(&header), sizeof header).append(text);
  }
  return bytes.append(input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  using Clock = std::chrono::steady_clock;
  int ends[2];
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  // A frame has a text of 4 KB at most; up to 64 KB are kept as received.
  const fuzz::MemoryLimit limit(16 * size + (std::size_t{256} << 10));
  if (size > 65536 || ::socketpair(AF_UNIX, kType, 0, ends) != 0) return 0;
  net::FileDescriptor peer(ends[1]);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool raw = size > 0 && (data[0] & 1) != 0 && data[0] != 0x43;
  const std::string bytes = raw ? std::string(input) : with_checksums(input);
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
