// Messages from one rank that are not yet received. Pairs posted receives with arriving headers,
// keeps messages that arrive before their receive, and reports two ranks whose calls differ. For
// transports.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "tandem/comm/failure/monitor.h"
#include "tandem/comm/network/transport.h"

namespace tandem::comm {

// A message whose header has arrived. The transport fills `target`, then calls Inbox::finish().
struct Incoming {
  Header header;
  std::span<std::byte> target;
  std::shared_ptr<Message> message;  // the receive it belongs to; none: it arrived first
  std::vector<std::byte>
      storage;  // for a message without a receive; grows with the bytes that arrive
  bool complete = false;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
  // Returns true if `target` has room for all bytes. A message that arrived first gets its room as
  // the bytes arrive: grow() whenever it is full.
  bool whole() const { return target.size() == header.bytes; }
  void grow();
  void grow(std::size_t bytes);
};

class Inbox {
 public:
  // References must outlive the inbox.
  Inbox(const Peer& self, const Peer& peer, Monitor& monitor)
      : self_(self), peer_(peer), monitor_(monitor) {}

  // Posts a receive into `bytes`; it may complete at once.
  std::shared_ptr<const Message> post(const Header& expected, std::span<std::byte> bytes);
  // The next message of this peer. Null if it is not the expected one: the difference has been
  // reported, and no more messages are delivered.
  std::shared_ptr<Incoming> begin(const Header& header);
  void finish(Incoming& incoming);
  bool disagreed() const { return disagreed_; }

 private:
  struct Posted {
    std::shared_ptr<Message> message;
    std::span<std::byte> bytes;
  };
  struct Stream {
    std::deque<Posted> posted;
    std::deque<std::shared_ptr<Incoming>> arrived;  // before their receives
  };
  void deliver(Stream& stream);
  bool matches(const Header& expected, const Header& found);

  const Peer& self_;
  const Peer& peer_;
  Monitor& monitor_;
  std::map<std::uint8_t, Stream> streams_;  // by channel
  bool disagreed_ = false;
};

// The inboxes of all ranks. After a disagreement in one of them, none delivers messages any more.
class Inboxes {
 public:
  // The inbox of rank `rank`; by rank, as `peers`. References must outlive the inboxes.
  Inboxes(const std::vector<Peer>& peers, std::size_t rank, Monitor& monitor);

  std::shared_ptr<const Message> post(int peer, const Header& expected, std::span<std::byte> bytes);
  std::shared_ptr<Incoming> begin(std::size_t peer, const Header& header);
  void finish(std::size_t peer, Incoming& incoming);
  bool disagreed() const { return disagreed_; }

 private:
  std::vector<Inbox> inboxes_;
  bool disagreed_ = false;
};

}  // namespace tandem::comm
