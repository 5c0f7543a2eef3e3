// Messages through a plugin's library (libfabric, an MPI, Gloo).
//
// The library moves bytes. The message layer is implemented here, once for all libraries, so that
// none of them receives more than its buffer holds (Gloo would abort, some MPIs would overwrite
// memory).
//   Each rank keeps a few packets of 4 KiB posted for every other rank. A message is a packet with
//   its head (frame.h), the checksum of its bytes and, if they fit, the bytes. The bytes of a
//   longer message follow in separate messages, which are received once the header has given their
//   number: directly into the buffer of the posted receive, or into new memory if the message
//   arrives first. So ranks may run ahead of each other without deadlock, as over tcp.
// A rank that closes sends a last packet that marks the end: once it is read, all earlier messages
// have been read.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "tandem/comm/failure/monitor.h"
#include "tandem/comm/network/frame.h"
#include "tandem/comm/network/inbox.h"
#include "tandem/comm/network/plugin_fabric.h"
#include "tandem/comm/network/transport.h"

namespace tandem::comm {

class PluginTransport final : public Transport {
 public:
  // `fabric` is connected. References must outlive the transport. `timeout` bounds the wait for
  // unsent messages at the end.
  PluginTransport(PluginFabric fabric, const std::vector<Peer>& peers, int rank,
                  std::chrono::milliseconds timeout, Monitor& monitor, Failure& failure);
  // Sends the remaining messages, sends the goodbye to the other ranks, and closes the fabric.
  // After a failure the fabric is closed before the exception reaches the caller, whose buffers end
  // with it.
  ~PluginTransport() override;

  std::string describe() const override { return description_; }
  std::shared_ptr<const Message> send(int peer, const Header& header,
                                      std::span<const std::byte> bytes) override;
  std::shared_ptr<const Message> receive(int peer, const Header& expected,
                                         std::span<std::byte> bytes) override;
  bool progress(std::chrono::microseconds max_wait) override;
  bool closed(int peer) const override { return links_[static_cast<std::size_t>(peer)].closed(); }

 private:
  static constexpr std::size_t kPacketBytes = TANDEM_FABRIC_PACKET_BYTES;
  struct PacketHead {
    FrameHead frame;
    std::uint32_t bytes_checksum = 0;  // checksum of the head's checksum and the bytes
  };
  static constexpr std::size_t kInlineBytes = kPacketBytes - sizeof(PacketHead);
  using Packet = std::array<std::byte, kPacketBytes>;
  // A message that is sent in pieces, its packet and its bytes; done when the library has sent all
  // of them.
  struct Outgoing {
    std::shared_ptr<Message> message;
    std::size_t pieces = 0;
  };
  // A message whose bytes arrive in pieces.
  struct Arriving {
    std::shared_ptr<Incoming> incoming;
    std::size_t pieces = 0;
    PacketHead head;
  };
  // One call of the library's send or receive.
  struct Operation {
    std::size_t peer = 0;
    std::uint32_t tag = 0;
    bool sending = false;
    bool ended = false;
    std::span<std::byte> bytes;
    std::unique_ptr<Packet> packet;      // for a packet; kept for the next use of the operation
    std::shared_ptr<Outgoing> outgoing;  // none for a goodbye packet
    std::shared_ptr<Arriving> arriving;
  };
  struct Link {
    bool broken = false;
    bool goodbye_sent = false;
    std::uint32_t packets_sent = 0;
    std::uint32_t packets_received = 0;
    std::size_t sends_under_way = 0;   // includes waiting ones
    std::size_t bodies_under_way = 0;  // a goodbye packet may overtake them
    // Operations for which the library had no room. Separate lists, so that a send that waits for
    // the other rank never holds up a receive.
    std::deque<Operation*> waiting_sends;
    std::deque<Operation*> waiting_receives;
    std::deque<Operation*> posted_packets;  // in the order in which they will be filled
    std::chrono::steady_clock::time_point broken_since{};
    std::string reason;  // why the link broke
    bool closed() const { return broken || (goodbye_sent && bodies_under_way == 0); }
  };

  Operation* take(bool with_packet);
  void give_back(Operation* operation);
  void start(std::size_t peer, Operation* operation);
  bool try_start(const Operation& operation);
  bool start_waiting();
  bool poll_library();
  void operation_ended(Operation* operation, bool failed);
  void body_arrived(Arriving& arriving, std::size_t peer);
  void post_packet(std::size_t peer);
  void read_packets(std::size_t peer);
  void read_packet(std::size_t peer, const Packet& packet);
  void receive_body(std::size_t peer, std::shared_ptr<Arriving> arriving);
  PacketHead head_of(std::size_t peer, const Header& header, std::span<const std::byte> bytes);
  void send_packet(std::size_t peer, const PacketHead& head, std::span<const std::byte> bytes,
                   std::shared_ptr<Outgoing> outgoing);
  void report_damage(std::size_t peer, const std::string& what);
  void sleep(std::chrono::microseconds limit, int round) const;
  void report_broken_links();
  bool unsent() const;
  bool end_in_order();
  bool stopped() const { return fabric_.get() == nullptr; }

  PluginFabric fabric_;
  const std::string description_;
  const std::size_t rank_;
  const std::size_t piece_bytes_;  // the library's longest message
  const std::chrono::milliseconds timeout_;
  std::vector<Link> links_;
  Inboxes inboxes_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> free_packets_;
  std::vector<Operation*> free_bodies_;
  const std::vector<Peer>& peers_;
  Monitor& monitor_;
  Failure& failure_;
  std::size_t num_waiting_ = 0;
  bool any_broken_ = false;
};

}  // namespace tandem::comm
