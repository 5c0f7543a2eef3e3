#include "tandem/comm/tcp_transport.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "tandem/core/error.h"

namespace tandem::comm {

TcpTransport::TcpTransport(std::vector<rendezvous::FileDescriptor> sockets,
                           const std::vector<Peer>& peers, int rank, Monitor& monitor,
                           Failure& failure)
    : links_(sockets.size()), failure_(failure) {
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    inboxes_.emplace_back(peers[static_cast<std::size_t>(rank)], peers[i], monitor);
    links_[i].closed = !sockets[i];
    links_[i].socket = std::move(sockets[i]);
  }
}

std::shared_ptr<const Message> TcpTransport::send(int peer, const Header& header,
                                                  std::span<const std::byte> bytes) {
  auto message = std::make_shared<Message>();
  message->peer = peer;
  message->sending = true;
  message->header = header;
  const auto index = static_cast<std::size_t>(peer);
  Link& link = links_[index];
  link.outgoing.push_back({message, bytes, 0});
  if (link.outgoing.size() == 1) send_queued(index);
  return message;
}

std::shared_ptr<const Message> TcpTransport::receive(int peer, const Header& expected,
                                                     std::span<std::byte> bytes) {
  Inbox& inbox = inboxes_[static_cast<std::size_t>(peer)];
  auto message = inbox.post(expected, bytes);
  disagreed_ = disagreed_ || inbox.disagreed();
  return message;
}

bool TcpTransport::progress(std::chrono::microseconds patience) {
  bool moved = false;
  std::vector<pollfd> waits;
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    if (link.closed) continue;
    const short events = link.outgoing.empty() ? POLLIN : POLLIN | POLLOUT;
    waits.push_back({link.socket.get(), events, 0});
    ranks.push_back(i);
  }
  waits.push_back({failure_.event(), POLLIN, 0});
  const timespec timeout{static_cast<time_t>(patience.count() / 1000000),
                         static_cast<long>(patience.count() % 1000000 * 1000)};
  if (disagreed_)
    waits.erase(waits.begin(), waits.end() - 1);  // only the failure is still of interest
  if (::ppoll(waits.data(), waits.size(), &timeout, nullptr) <= 0 || disagreed_) return false;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if ((waits[i].revents & POLLOUT) != 0) moved = send_queued(ranks[i]) || moved;
    if ((waits[i].revents & ~POLLOUT) != 0) moved = read_available(ranks[i]) || moved;
  }
  return moved;
}

bool TcpTransport::send_queued(std::size_t peer) {
  Link& link = links_[peer];
  bool moved = false;
  while (!link.outgoing.empty() && !link.closed) {
    Outgoing& outgoing = link.outgoing.front();
    const Header& header = outgoing.message->header;
    iovec parts[2];
    int num_parts = 0;
    if (outgoing.sent < sizeof header) {
      const auto* start = reinterpret_cast<const std::byte*>(&header) + outgoing.sent;
      parts[num_parts++] = {const_cast<std::byte*>(start), sizeof header - outgoing.sent};
    }
    const std::size_t body_sent = outgoing.sent - std::min(outgoing.sent, sizeof header);
    if (body_sent < outgoing.bytes.size()) {
      parts[num_parts++] = {const_cast<std::byte*>(outgoing.bytes.data()) + body_sent,
                            outgoing.bytes.size() - body_sent};
    }
    msghdr call{};
    call.msg_iov = parts;
    call.msg_iovlen = static_cast<std::size_t>(num_parts);
    const ssize_t count = ::sendmsg(link.socket.get(), &call, MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) link.closed = true;
      return moved;
    }
    moved = true;
    outgoing.sent += static_cast<std::size_t>(count);
    if (outgoing.sent < sizeof header + outgoing.bytes.size()) continue;
    outgoing.message->complete();
    link.outgoing.pop_front();
  }
  return moved;
}

// Reads until the socket is empty or has had its turn, so that no peer starves the others.
bool TcpTransport::read_available(std::size_t peer) {
  constexpr std::size_t kTurn = std::size_t{16} << 20;
  Link& link = links_[peer];
  bool moved = false;
  std::size_t total = 0;
  while (!link.closed && !disagreed_ && !failure_.is_set() && total < kTurn) {
    const bool in_header = link.header_read < sizeof(Header);
    const std::span<std::byte> rest =
        in_header ? std::as_writable_bytes(std::span(&link.header, 1)).subspan(link.header_read)
                  : link.incoming->target.subspan(link.read);
    const ssize_t count = ::recv(link.socket.get(), rest.data(), rest.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return moved;
    if (count <= 0) {
      link.closed = true;
      return moved;
    }
    moved = true;
    total += static_cast<std::size_t>(count);
    if (in_header) {
      link.header_read += static_cast<std::size_t>(count);
      if (link.header_read < sizeof(Header)) continue;
      link.incoming = inboxes_[peer].begin(link.header);
      if (!link.incoming) {
        disagreed_ = true;
        return moved;
      }
    } else {
      link.read += static_cast<std::size_t>(count);
    }
    if (link.read == link.incoming->target.size()) finish_message(peer);
  }
  return moved;
}

void TcpTransport::finish_message(std::size_t peer) {
  Link& link = links_[peer];
  inboxes_[peer].finish(*link.incoming);
  disagreed_ = disagreed_ || inboxes_[peer].disagreed();
  link.incoming.reset();
  link.header_read = 0;
  link.read = 0;
}

}  // namespace tandem::comm
