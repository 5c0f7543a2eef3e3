// Messages over one TCP connection per pair of ranks: works between hosts and inside one.
//
// Sending never waits: what the socket does not take stays queued until progress(). A message that arrives before its
// receive was posted is kept in memory of its own, so ranks may run ahead of each other without deadlock.
#pragma once

#include <deque>
#include <vector>

#include "tandem/comm/inbox.h"
#include "tandem/comm/monitor.h"
#include "tandem/comm/transport.h"

namespace tandem::comm {

class TcpTransport final : public Transport {
 public:
  // `sockets[r]` leads to rank r. References must outlive the transport.
  TcpTransport(std::vector<rendezvous::FileDescriptor> sockets, const std::vector<Peer>& peers,
               int rank, Monitor& monitor, Failure& failure);
  std::string describe() const override { return "tcp"; }
  std::shared_ptr<const Message> send(int peer, const Header& header,
                                      std::span<const std::byte> bytes) override;
  std::shared_ptr<const Message> receive(int peer, const Header& expected,
                                         std::span<std::byte> bytes) override;
  bool progress(std::chrono::microseconds patience) override;
  bool closed(int peer) const override { return links_[static_cast<std::size_t>(peer)].closed; }

 private:
  struct Outgoing {
    std::shared_ptr<Message> message;
    std::span<const std::byte> bytes;
    std::size_t sent = 0;  // of header and bytes
  };
  struct Link {
    rendezvous::FileDescriptor socket;
    bool closed = false;
    std::deque<Outgoing> outgoing;
    // The message that is being read.
    Header header;
    std::size_t header_read = 0;
    std::shared_ptr<Incoming> incoming;  // once the header is complete
    std::size_t read = 0;
  };

  bool send_queued(std::size_t peer);
  bool read_available(std::size_t peer);
  void finish_message(std::size_t peer);

  std::vector<Link> links_;
  std::vector<Inbox> inboxes_;
  Failure& failure_;
  bool disagreed_ = false;  // a header was not the expected one: nothing is delivered any more
};

}  // namespace tandem::comm
