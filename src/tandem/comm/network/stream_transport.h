// Messages as byte streams: over one TCP connection per pair of ranks, and inside a node through
// the memory of node_streams.h. There the connection only shows that the other rank has ended.
//
// Sending never waits: bytes that the stream does not take stay queued until progress(). A message
// that arrives before its receive is kept in separate memory, so ranks may run ahead of each other
// without deadlock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tandem/comm/failure/monitor.h"
#include "tandem/comm/failure/send_watch.h"
#include "tandem/comm/network/frame.h"
#include "tandem/comm/network/inbox.h"
#include "tandem/comm/network/transport.h"
#include "tandem/comm/node/node_memory.h"
#include "tandem/comm/node/node_streams.h"

namespace tandem::comm {

class StreamTransport final : public Transport {
 public:
  // `sockets[r]` leads to rank r; `paths` is updated with those to other hosts. References must
  // outlive the transport.
  StreamTransport(std::vector<net::FileDescriptor> sockets, const std::vector<Peer>& peers,
                  int rank, Monitor& monitor, Failure& failure, std::shared_ptr<DataPaths> paths);
  ~StreamTransport() override;
  // From now on messages to the ranks `members` (of the job, this one included) use `streams`,
  // indexed by position in `members`. Call before the first message.
  void use_node_streams(std::unique_ptr<NodeStreams> streams, NodeMemory memory,
                        std::span<const int> members);
  std::string describe() const override { return "tcp"; }
  std::shared_ptr<const Message> send(int peer, const Header& header,
                                      std::span<const std::byte> bytes) override;
  std::shared_ptr<const Message> receive(int peer, const Header& expected,
                                         std::span<std::byte> bytes) override;
  bool progress(std::chrono::microseconds max_wait) override;
  std::string describe_stall(std::chrono::milliseconds limit) override;
  bool closed(int peer) const override;

 private:
  struct Outgoing {
    std::shared_ptr<Message> message;
    std::span<const std::byte> bytes;
    FrameHead head;
    std::uint32_t checksum = 0;  // checksum of the first `summed` bytes; sent after all of them
    std::size_t summed = 0;
    std::size_t sent = 0;  // bytes of the frame
  };
  // The message that is being read.
  struct Reading {
    FrameHead head;
    std::size_t head_read = 0;
    std::shared_ptr<Incoming> incoming;  // once the head is complete
    std::size_t read = 0;
    std::uint32_t checksum = 0;  // checksum of the bytes read so far
    std::uint32_t expected = 0;  // received after the bytes
    std::size_t expected_read = 0;
  };
  struct Link {
    net::FileDescriptor socket;
    bool closed = false;  // the connection has ended
    SendWatch watch;
    int local = -1;  // number in the node's streams; −1: bytes go through the socket
    std::deque<Outgoing> outgoing;
    Reading reading;
    std::uint32_t frames_sent = 0;
    std::uint32_t frames_received = 0;
    // Bytes that a read of the socket returned beyond the requested ones: [ahead_begin, ahead_end).
    std::unique_ptr<std::byte[]> ahead;
    std::size_t ahead_begin = 0;
    std::size_t ahead_end = 0;
    bool drained = false;  // the last read emptied the socket

    // Returns true if frames carry checksums. In shared memory a message has only its Header.
    bool leaves_node() const { return local < 0; }
    std::size_t head_bytes() const { return leaves_node() ? sizeof(FrameHead) : sizeof(Header); }
    std::size_t frame_bytes(const Header& header) const {
      const bool summed = leaves_node() && header.bytes > 0;
      return head_bytes() + header.bytes + (summed ? sizeof(std::uint32_t) : 0);
    }
  };
  using Parts = std::array<std::span<const std::byte>, 3>;

  static constexpr std::ptrdiff_t kNothingNow = -1;
  bool send_queued(std::size_t peer);
  bool read_available(std::size_t peer);
  // Bytes that the stream took or delivered; kNothingNow; the end of the connection closes the
  // link.
  std::ptrdiff_t put(Link& link, Parts parts);
  static Parts next_parts(const Link& link, Outgoing& outgoing);
  std::ptrdiff_t get(Link& link, std::span<std::byte> target);
  std::ptrdiff_t get_from_socket(Link& link, std::span<std::byte> target);
  bool move(std::span<const std::size_t> peers);
  bool poll_sockets(bool all, std::chrono::microseconds max_wait);
  void look_at_connection(Link& link);
  static std::span<std::byte> wanted(Link& link);
  bool take(std::size_t peer, std::span<const std::byte> bytes);
  bool begin_message(std::size_t peer);
  bool is_damaged(std::size_t peer);
  void finish_message(std::size_t peer);

  const std::vector<Peer>& peers_;
  std::vector<Link> links_;
  Inboxes inboxes_;
  std::optional<NodeMemory> memory_;      // memory of the streams
  std::unique_ptr<NodeStreams> streams_;  // none for the only rank of a node
  std::vector<std::size_t> neighbours_;   // the ranks at their other ends
  std::vector<std::size_t> far_;          // the ranks behind sockets
  unsigned calls_ = 0;
  Monitor& monitor_;
  Failure& failure_;
  std::shared_ptr<DataPaths> paths_;
};

}  // namespace tandem::comm
