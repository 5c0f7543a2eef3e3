#include "tandem/comm/network/stream_transport.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

// Connections to ranks of this node carry only news of their end: polled at this interval, and
// before every sleep.
constexpr unsigned kCallsBetweenLooks = 64;
// Up to so many sockets are read at once, which costs less than a poll for the readable ones.
constexpr std::size_t kFewSockets = 4;
// Bytes read beyond a header or a message: small messages arrive with one system call.
constexpr std::size_t kAhead = 4096;
// Up to this size, header and message are copied together and sent at once.
constexpr std::size_t kCopied = 256;
// Bytes that one link sends and reads before the other direction and the other links continue.
// Bytes in flight are then still in a cache when the other side reads them: sending 1 MB to another
// host is three times as fast as with sends as large as the socket takes.
// host three times as fast as when all that the socket takes is sent at once.
constexpr std::size_t kSendTurn = std::size_t{128} << 10;
constexpr std::size_t kReadTurn = std::size_t{256} << 10;

}  // namespace

StreamTransport::StreamTransport(std::vector<net::FileDescriptor> sockets,
                                 const std::vector<Peer>& peers, int rank, Monitor& monitor,
                                 Failure& failure, std::shared_ptr<DataPaths> paths)
    : peers_(peers),
      links_(sockets.size()),
      inboxes_(peers, static_cast<std::size_t>(rank), monitor),
      monitor_(monitor),
      failure_(failure),
      paths_(std::move(paths)) {
  std::vector<int> far(sockets.size(), -1);
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    links_[i].closed = !sockets[i];
    if (sockets[i]) far_.push_back(i);
    links_[i].socket = std::move(sockets[i]);
    far[i] = links_[i].socket.get();
  }
  paths_->watch(std::move(far));
}

StreamTransport::~StreamTransport() { paths_->forget(); }

std::shared_ptr<const Message> StreamTransport::send(int peer, const Header& header,
                                                     std::span<const std::byte> bytes) {
  auto message = std::make_shared<Message>();
  message->peer = peer;
  message->sending = true;
  message->header = header;
  const auto index = static_cast<std::size_t>(peer);
  Link& link = links_[index];
  Outgoing outgoing;
  outgoing.message = message;
  outgoing.bytes = bytes;
  outgoing.head.header = header;
  if (link.leaves_node()) {
    outgoing.head.number = link.frames_sent++;
    outgoing.checksum = outgoing.head.checksum = outgoing.head.sum();
  }
  link.outgoing.push_back(std::move(outgoing));
  if (link.outgoing.size() == 1) send_queued(index);
  return message;
}

std::shared_ptr<const Message> StreamTransport::receive(int peer, const Header& expected,
                                                        std::span<std::byte> bytes) {
  return inboxes_.post(peer, expected, bytes);
}

void StreamTransport::use_node_streams(std::unique_ptr<NodeStreams> streams, NodeMemory memory,
                                       std::span<const int> members) {
  for (std::size_t local = 0; local < members.size(); ++local) {
    const auto peer = static_cast<std::size_t>(members[local]);
    if (!links_[peer].socket) continue;  // this rank itself
    links_[peer].local = static_cast<int>(local);
    neighbours_.push_back(peer);
  }
  std::erase_if(far_, [&](std::size_t peer) { return links_[peer].local >= 0; });
  memory_.emplace(std::move(memory));
  streams_ = std::move(streams);
}

bool StreamTransport::closed(int peer) const {
  const Link& link = links_[static_cast<std::size_t>(peer)];
  // Bytes that it wrote before its end are still to be read.
  return link.closed && (link.local < 0 || !streams_->readable(link.local));
}

std::string StreamTransport::describe_stall(std::chrono::milliseconds limit) {
  std::string text;
  for (const std::size_t peer : far_) {
    Link& link = links_[peer];
    if (link.closed) continue;
    const auto stall = link.watch.look(link.socket.get(), SendWatch::Clock::now(), limit);
    if (!stall || !text.empty()) continue;
    constexpr std::uint32_t kHeaders = 28;  // headers of IPv4 and ICMP
    text = fmt::format(
        "cannot get its data to {}: {} bytes are under way and for {:.1f} s nothing was "
        "acknowledged, "
        "though that host answers and would take them. A switch, tunnel or firewall on the way "
        "drops "
        "packets, as a rule the large ones; this host's are of up to {} bytes. 'ping -M do -s {} "
        "{}' "
        "shows it; 'ip link set dev INTERFACE mtu 1400' on all hosts, or a smaller number, mends "
        "it",
        peers_[peer].describe(), stall->bytes,
        std::chrono::duration<double>(stall->duration).count(), stall->packet_bytes,
        stall->packet_bytes - std::min(stall->packet_bytes, kHeaders), peers_[peer].host);
  }
  return text;
}

bool StreamTransport::progress(std::chrono::microseconds max_wait) {
  const bool moved = move(neighbours_);
  if (moved) max_wait = {};
  if (max_wait.count() == 0) {
    const bool all = ++calls_ % kCallsBetweenLooks == 0;
    if (all || far_.size() > kFewSockets) return poll_sockets(all, max_wait) || moved;
    return move(far_) || moved;
  }
  if (!streams_) return poll_sockets(true, max_wait);
  streams_->prepare_sleep();
  const bool moved_meanwhile = move(neighbours_);
  const bool moved_later = poll_sockets(true, moved_meanwhile ? max_wait.zero() : max_wait);
  streams_->wake_up();
  return move(neighbours_) || moved_meanwhile || moved_later;
}

bool StreamTransport::move(std::span<const std::size_t> peers) {
  bool moved = false;
  for (const std::size_t peer : peers) {
    if (inboxes_.disagreed()) return moved;
    const Link& link = links_[peer];
    if (!link.outgoing.empty() && !link.closed) moved = send_queued(peer) || moved;
    if (link.local < 0 ? !link.closed : streams_->readable(link.local)) {
      moved = read_available(peer) || moved;
    }
  }
  return moved;
}

// Polls the sockets of other nodes' ranks; with `all`, those of neighbours too.
bool StreamTransport::poll_sockets(bool all, std::chrono::microseconds max_wait) {
  bool moved = false;
  std::vector<pollfd> waits;
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < links_.size() && !inboxes_.disagreed(); ++i) {
    Link& link = links_[i];
    if (link.closed || (link.local >= 0 && !all)) continue;
    const bool sends = !link.outgoing.empty() && link.local < 0;
    waits.push_back({link.socket.get(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0});
    ranks.push_back(i);
  }
  // After a disagreement only the failure is still of interest.
  waits.push_back({failure_.event(), POLLIN, 0});
  if (streams_ && !inboxes_.disagreed()) waits.push_back({streams_->bell(), POLLIN, 0});
  const timespec timeout{static_cast<time_t>(max_wait.count() / 1000000),
                         static_cast<long>(max_wait.count() % 1000000 * 1000)};
  if (::ppoll(waits.data(), waits.size(), &timeout, nullptr) <= 0 || inboxes_.disagreed())
    return false;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Link& link = links_[ranks[i]];
    if ((waits[i].revents & POLLOUT) != 0) moved = send_queued(ranks[i]) || moved;
    if ((waits[i].revents & ~POLLOUT) == 0) continue;
    if (link.local < 0) {
      moved = read_available(ranks[i]) || moved;
    } else {
      look_at_connection(link);
    }
  }
  return moved;
}

bool StreamTransport::send_queued(std::size_t peer) {
  Link& link = links_[peer];
  bool moved = false;
  std::size_t total = 0;
  while (!link.outgoing.empty() && !link.closed && total < kSendTurn) {
    Outgoing& outgoing = link.outgoing.front();
    const std::ptrdiff_t count = put(link, next_parts(link, outgoing));
    if (count == kNothingNow) return moved;
    moved = true;
    total += static_cast<std::size_t>(count);
    outgoing.sent += static_cast<std::size_t>(count);
    if (outgoing.sent < link.frame_bytes(outgoing.head.header)) continue;
    outgoing.message->complete();
    link.outgoing.pop_front();
  }
  return moved;
}

// The rest of the head, a limited piece of the bytes, and after the last of them their checksum.
// Bytes are summed just before the kernel copies them, so that they are read from memory once.
StreamTransport::Parts StreamTransport::next_parts(const Link& link, Outgoing& outgoing) {
  const std::size_t head_bytes = link.head_bytes();
  const std::size_t of_head = std::min(outgoing.sent, head_bytes);
  const std::size_t of_bytes = std::min(outgoing.sent - of_head, outgoing.bytes.size());
  const auto head = std::as_bytes(std::span(&outgoing.head, 1)).first(head_bytes);
  const auto rest = outgoing.bytes.subspan(of_bytes);
  Parts parts = {head.subspan(of_head), rest.first(std::min(rest.size(), kSendTurn)), {}};
  if (!link.leaves_node()) return parts;
  const std::size_t end = of_bytes + parts[1].size();
  if (outgoing.summed < end) {
    outgoing.checksum =
        crc32c(outgoing.bytes.subspan(outgoing.summed, end - outgoing.summed), outgoing.checksum);
    outgoing.summed = end;
  }
  if (!outgoing.bytes.empty() && end == outgoing.bytes.size()) {
    parts[2] =
        std::as_bytes(std::span(&outgoing.checksum, 1)).subspan(outgoing.sent - of_head - of_bytes);
  }
  return parts;
}

std::ptrdiff_t StreamTransport::put(Link& link, Parts parts) {
  if (!link.leaves_node()) {
    const std::size_t count = streams_->write(link.local, parts[0], parts[1]);
    return count == 0 ? kNothingNow : static_cast<std::ptrdiff_t>(count);
  }
  // A small message is copied into one buffer: one plain call costs less than a list of parts.
  std::array<std::byte, kCopied> together;
  if (parts[0].size() + parts[1].size() + parts[2].size() <= together.size()) {
    auto end = together.begin();
    for (const auto part : parts) end = std::copy(part.begin(), part.end(), end);
    parts = {std::span(together.begin(), end)};
  }
  std::array<iovec, 3> vectors;
  std::size_t num_parts = 0;
  for (const auto part : parts) {
    if (!part.empty()) vectors[num_parts++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  msghdr call{};
  call.msg_iov = vectors.data();
  call.msg_iovlen = num_parts;
  while (true) {
    const ssize_t count = num_parts == 1 ? ::send(link.socket.get(), vectors[0].iov_base,
                                                  vectors[0].iov_len, MSG_NOSIGNAL)
                                         : ::sendmsg(link.socket.get(), &call, MSG_NOSIGNAL);
    if (count >= 0) return count;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) link.closed = true;
    return kNothingNow;
  }
}

// Reads until the stream is empty or the limit of one link is reached.
bool StreamTransport::read_available(std::size_t peer) {
  Link& link = links_[peer];
  bool moved = false;
  std::size_t total = 0;
  link.drained = false;
  // Bytes read ahead are always taken: no poll would report them.
  while (!inboxes_.disagreed() && !failure_.is_set() &&
         (total < kReadTurn || link.ahead_begin < link.ahead_end)) {
    const std::span<std::byte> rest = wanted(link);
    const std::ptrdiff_t count = get(link, rest);
    if (count == kNothingNow) return moved;
    moved = true;
    total += static_cast<std::size_t>(count);
    if (!take(peer, rest.first(static_cast<std::size_t>(count)))) return moved;
  }
  return moved;
}

// Destination of the next bytes of the frame. For a long message at most one piece, so that the
// summed bytes are still in a cache.
std::span<std::byte> StreamTransport::wanted(Link& link) {
  Reading& reading = link.reading;
  if (reading.head_read < link.head_bytes()) {
    return std::as_writable_bytes(std::span(&reading.head, 1))
        .first(link.head_bytes())
        .subspan(reading.head_read);
  }
  const auto rest = reading.incoming->target.subspan(reading.read);
  if (!rest.empty()) return rest.first(std::min(rest.size(), kReadTurn));
  return std::as_writable_bytes(std::span(&reading.expected, 1)).subspan(reading.expected_read);
}

// `bytes` arrived at the destination of wanted(). Returns false if no more is read from this link.
bool StreamTransport::take(std::size_t peer, std::span<const std::byte> bytes) {
  Link& link = links_[peer];
  Reading& reading = link.reading;
  if (reading.head_read < link.head_bytes()) {
    reading.head_read += bytes.size();
    if (reading.head_read < link.head_bytes()) return true;
    if (!begin_message(peer)) return false;
  } else if (reading.read < reading.incoming->target.size()) {
    reading.read += bytes.size();
    if (link.leaves_node()) reading.checksum = crc32c(bytes, reading.checksum);
  } else {
    reading.expected_read += bytes.size();
  }
  Incoming& incoming = *reading.incoming;
  if (reading.read < incoming.target.size()) return true;
  if (!incoming.whole()) {
    incoming.grow();
    return true;
  }
  if (link.leaves_node() && incoming.header.bytes > 0) {
    if (reading.expected_read < sizeof reading.expected) return true;
    if (is_damaged(peer)) return false;
  }
  finish_message(peer);
  return true;
}

bool StreamTransport::begin_message(std::size_t peer) {
  Link& link = links_[peer];
  Reading& reading = link.reading;
  if (link.leaves_node()) {
    const std::uint32_t number = link.frames_received++;
    reading.checksum = reading.head.sum();
    reading.expected = reading.head.checksum;
    if (is_damaged(peer)) return false;
    if (reading.head.number != number) {
      link.closed = true;
      monitor_.report_damage(
          peer, fmt::format("frame {} arrived, expected frame {}", reading.head.number, number));
      return false;
    }
  }
  reading.incoming = inboxes_.begin(peer, reading.head.header);
  return reading.incoming != nullptr;
}

// Returns true if the checksum of the read bytes differs from the sent one. Then nothing more is
// read, since the start of the next frame is unknown.
bool StreamTransport::is_damaged(std::size_t peer) {
  Link& link = links_[peer];
  const Reading& reading = link.reading;
  if (reading.checksum == reading.expected) return false;
  link.closed = true;
  monitor_.report_damage(
      peer, fmt::format("{} from {} arrived with checksum {:08x}, expected {:08x}",
                        reading.incoming == nullptr
                            ? "the head of a frame"
                            : fmt::format("{} bytes of {}", reading.incoming->header.bytes,
                                          comm::describe(reading.incoming->header)),
                        net::peer_address(link.socket), reading.checksum, reading.expected));
  return true;
}

std::ptrdiff_t StreamTransport::get(Link& link, std::span<std::byte> target) {
  if (link.local >= 0) {
    const std::size_t count = streams_->read(link.local, target);
    return count == 0 ? kNothingNow : static_cast<std::ptrdiff_t>(count);
  }
  if (link.ahead_begin < link.ahead_end) {
    const std::size_t count = std::min(target.size(), link.ahead_end - link.ahead_begin);
    std::memcpy(target.data(), link.ahead.get() + link.ahead_begin, count);
    link.ahead_begin += count;
    return static_cast<std::ptrdiff_t>(count);
  }
  return link.drained ? kNothingNow : get_from_socket(link, target);
}

// Fills `target`, then the read-ahead buffer.
std::ptrdiff_t StreamTransport::get_from_socket(Link& link, std::span<std::byte> target) {
  if (!link.ahead) link.ahead = std::make_unique_for_overwrite<std::byte[]>(kAhead);
  iovec parts[] = {{target.data(), target.size()}, {link.ahead.get(), kAhead}};
  const bool small = target.size() <= sizeof(FrameHead);  // arrives with the bytes read ahead
  while (!link.closed) {
    const ssize_t count = small ? ::recv(link.socket.get(), link.ahead.get(), kAhead, 0)
                                : ::readv(link.socket.get(), parts, std::size(parts));
    if (count > 0) {
      const auto bytes = static_cast<std::size_t>(count);
      const std::size_t taken = std::min(bytes, target.size());
      link.drained = bytes < (small ? 0 : target.size()) + kAhead;
      if (small) std::memcpy(target.data(), link.ahead.get(), taken);
      link.ahead_begin = small ? taken : 0;
      link.ahead_end = small ? bytes : bytes - taken;
      return static_cast<std::ptrdiff_t>(taken);
    }
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || errno != EAGAIN) link.closed = true;
    return kNothingNow;
  }
  return kNothingNow;
}

void StreamTransport::look_at_connection(Link& link) {
  std::byte nothing{};
  const ssize_t count = ::recv(link.socket.get(), &nothing, sizeof nothing, 0);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) link.closed = true;
}

void StreamTransport::finish_message(std::size_t peer) {
  Reading& reading = links_[peer].reading;
  inboxes_.finish(peer, *reading.incoming);
  reading.incoming.reset();
  reading.head_read = reading.read = reading.expected_read = 0;
}

}  // namespace tandem::comm
