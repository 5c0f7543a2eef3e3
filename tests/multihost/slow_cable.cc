#include "multihost/slow_cable.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tandem::testing {
namespace {

using net::FileDescriptor;
using std::chrono::milliseconds;

// An interface of the calling thread's network whose packets this process sends and receives.
FileDescriptor make_interface(const std::string& name) {
  FileDescriptor tunnel(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tunnel) return tunnel;
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (::ioctl(tunnel.get(), TUNSETIFF, &request) != 0) tunnel.reset();
  return tunnel;
}

std::size_t word_at(const std::string& bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < bytes.size() ? std::size_t{static_cast<unsigned char>(bytes[i])} : 0;
  };
  return byte(at) << 8 | byte(at + 1);
}

std::size_t ip_header_bytes(const std::string& packet) {
  return 4 * (static_cast<std::size_t>(packet[0]) & 15);
}

// Where the data of a packet of TCP over IPv4 begin; the packet's end where it has none.
std::size_t data_of_tcp(const std::string& packet) {
  constexpr char kTcp = 6;
  if (packet.size() < 40 || (packet[0] >> 4) != 4 || packet[9] != kTcp) return packet.size();
  const std::size_t tcp = ip_header_bytes(packet);
  const std::size_t begin = tcp + (word_at(packet, tcp + 12) >> 12) * 4;
  return std::min(begin, packet.size());
}

// RFC 9293, 3.1: over the addresses, the protocol, the length and all of TCP.
void repair_sum(std::string& packet) {
  const std::size_t tcp = ip_header_bytes(packet);
  packet[tcp + 16] = packet[tcp + 17] = 0;
  std::size_t sum = 6 + packet.size() - tcp;
  for (std::size_t at = 12; at < 20; at += 2) sum += word_at(packet, at);
  for (std::size_t at = tcp; at < packet.size(); at += 2) sum += word_at(packet, at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  packet[tcp + 16] = static_cast<char>(~sum >> 8);
  packet[tcp + 17] = static_cast<char>(~sum);
}

FileDescriptor make_end(const CableEnd& end) {
  FileDescriptor made;
  // Threads have networks of their own.
  std::thread([&] {
    const FileDescriptor network(
        ::open(fmt::format("/proc/{}/ns/net", end.host.init()).c_str(), O_RDONLY | O_CLOEXEC));
    if (network && ::setns(network.get(), CLONE_NEWNET) == 0) made = make_interface(end.interface);
    if (!made) ADD_FAILURE() << "no " << end.interface << ": " << std::strerror(errno);
  }).join();
  if (!made) return made;
  end.host.shell(fmt::format("ip addr add {0} dev {1} nodad && ip link set {1} up", end.address,
                             end.interface));
  return made;
}

}  // namespace

std::string SlowCable::why_not() {
  const FileDescriptor tunnel(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  return tunnel ? "" : fmt::format("needs /dev/net/tun: {}", std::strerror(errno));
}

SlowCable::SlowCable(const CableEnd& a, const CableEnd& b, double bits_per_second)
    : seconds_per_byte_(8 / bits_per_second), ends_{make_end(a), make_end(b)} {
  thread_ = std::thread([this] { carry(); });
}

SlowCable::~SlowCable() {
  stop_ = true;
  thread_.join();
}

std::chrono::duration<double> SlowCable::longest_wait() const {
  return std::chrono::duration<double>(longest_wait_);
}

void SlowCable::carry() {
  std::array<pollfd, 2> events{pollfd{ends_[0].get(), POLLIN, 0},
                               pollfd{ends_[1].get(), POLLIN, 0}};
  while (!stop_) {
    // Packets of 1 Mbit/s take 12 ms.
    ::poll(events.data(), events.size(), 1);
    for (const std::size_t end : {0u, 1u}) {
      take_in(end);
      deliver(end, Clock::now());
    }
  }
}

void SlowCable::take_in(std::size_t end) {
  Way& way = ways_[end];
  std::string bytes(65536, '\0');
  while (true) {
    const ssize_t size = ::read(ends_[end].get(), bytes.data(), bytes.size());
    if (size <= 0) return;
    if (is_lost(bytes.substr(0, static_cast<std::size_t>(size)))) continue;
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> takes(seconds_per_byte_ * static_cast<double>(size));
    way.free = std::max(way.free, now) + std::chrono::duration_cast<Clock::duration>(takes);
    const std::chrono::duration<double> waits = way.free - now;
    longest_wait_ = std::max(longest_wait_.load(), waits.count());
    way.queue.push_back({way.free, bytes.substr(0, static_cast<std::size_t>(size))});
    damage(way.queue.back().bytes);
  }
}

void SlowCable::damage(std::string& packet) {
  const std::uint32_t every = flip_every_;
  const std::size_t begin = data_of_tcp(packet);
  if (every == 0 || begin >= packet.size() || ++packets_ < every) return;
  packets_ = 0;
  ++flipped_;
  const std::size_t at = begin + random_() % (packet.size() - begin);
  packet[at] = static_cast<char>(packet[at] ^ (1 << random_() % 8));
  repair_sum(packet);
}

bool SlowCable::is_lost(const std::string& packet) const {
  if (loses_ != Loses::kOldConnections) return loses_ == Loses::kEverything;
  // IPv4: the header's length in words is the lower half of the first byte, the protocol the tenth;
  // the flags of TCP are its fourteenth.
  constexpr char kTcp = 6, kSyn = 2, kRst = 4;
  if (packet.size() < 20 || (packet[0] >> 4) != 4 || packet[9] != kTcp) return false;
  const std::size_t flags = 4 * (static_cast<std::size_t>(packet[0]) & 15) + 13;
  return flags < packet.size() && (packet[flags] & (kSyn | kRst)) == 0;
}

void SlowCable::deliver(std::size_t end, Clock::time_point now) {
  std::deque<Packet>& queue = ways_[end].queue;
  for (; !queue.empty() && queue.front().arrives <= now; queue.pop_front()) {
    const std::string& bytes = queue.front().bytes;
    // A packet that the other end does not take is lost, as on any cable.
    [[maybe_unused]] const ssize_t sent = ::write(ends_[1 - end].get(), bytes.data(), bytes.size());
  }
}

}  // namespace tandem::testing
