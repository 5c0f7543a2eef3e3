// The inside of Communicator, shared by its source files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/comm/failure.h"
#include "tandem/comm/flight_recorder.h"
#include "tandem/comm/mesh.h"
#include "tandem/comm/monitor.h"
#include "tandem/comm/tcp_transport.h"

namespace tandem::comm {

struct Communicator::State {
  Options options;
  int rank = 0;
  int size = 1;
  std::vector<Peer> peers;
  std::string network;  // this rank's way to other hosts
  std::vector<Node> nodes;
  std::vector<int> node_index;  // by rank
  int local_rank = 0;
  bool closed = false;

  // None of these in a world of one. Destroyed in reverse order: the transport before the monitor it reports to.
  std::unique_ptr<FlightRecorder> recorder;
  std::unique_ptr<Failure> failure;
  std::unique_ptr<Monitor> monitor;
  std::vector<rendezvous::FileDescriptor> local_sockets;  // by rank
  std::unique_ptr<Transport> transport;

  std::uint64_t sequence = 0;  // of the next collective
  struct StreamCounters {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };
  std::vector<StreamCounters> streams;  // [peer · kChannels + channel]

  void group_nodes();
  // Writes the flight record under a heading that says `why`; returns where, empty if nowhere.
  std::filesystem::path write_flight_record(const std::string& why) const noexcept;
  const Peer& self() const { return peers[static_cast<std::size_t>(rank)]; }
  void check_open() const;
  void check_peer(int peer, std::string_view operation) const;
  // Waits for one message, at most options.timeout.
  void wait(const Message& message);
  // The end of a wait that cannot succeed: makes `message` the failure on all ranks and throws the first failure known.
  [[noreturn]] void fail(const std::string& message, const std::string& context);
};

// One collective under way: its header and the messages it has started.
class Collective {
 public:
  Collective(Transport& transport, const Header& header, FlightRecorder::Ticket ticket)
      : transport_(transport), header_(header), ticket_(ticket) {}
  FlightRecorder::Ticket ticket() const { return ticket_; }
  void send(int peer, std::span<const std::byte> bytes) { start(peer, bytes); }
  void receive(int peer, std::span<std::byte> bytes) {
    header_.bytes = bytes.size();
    messages_.push_back(transport_.receive(peer, header_, bytes));
  }
  const std::vector<std::shared_ptr<const Message>>& messages() const { return messages_; }
  void clear() { messages_.clear(); }
  Header& header() { return header_; }

 private:
  void start(int peer, std::span<const std::byte> bytes) {
    header_.bytes = bytes.size();
    messages_.push_back(transport_.send(peer, header_, bytes));
  }
  Transport& transport_;
  Header header_;
  FlightRecorder::Ticket ticket_;
  std::vector<std::shared_ptr<const Message>> messages_;
};

}  // namespace tandem::comm
