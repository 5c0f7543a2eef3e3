// Connections between the agents of a job, for the messages of protocol/messages.h. No message is
// sure to arrive: the membership repeats messages that matter. Queues are bounded: a peer that does
// not read loses messages.
//
// Each agent listens at one port. It sends over connections that it has opened, one to each
// address. Both ends begin with a random number, and every frame after it proves that its sender
// has the job's token (protocol/wire.h). Connections of unauthenticated peers are closed.
// Connections of users' programs, which have a different handshake, are passed to the code that
// answers them.
//
// The class also detects certain deaths: if no process listens at a dead agent's address, that
// host's kernel reports it, or another agent does. A host without any answer is only silent.
//
// Thread-safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tandem/elastic/protocol/wire.h"
#include "tandem/net/agent_handshake.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/pending_connections.h"
#include "tandem/net/socket.h"

namespace tandem::elastic {

struct AgentLinksOptions {
  membership::Peer self;  // "host:port", as seen by the others
  std::uint64_t job = 0;  // a hash of its id
  std::string token;      // token of the job; empty: no authentication
  std::function<void(const std::string&)> log;
};

class AgentLinks {
 public:
  using Clock = std::chrono::steady_clock;

  // `listener` is at the port of options.self.
  AgentLinks(net::FileDescriptor listener, AgentLinksOptions options);
  ~AgentLinks();

  // `to.id` 0: the node at the address.
  void send(const membership::Peer& to, const membership::Message& message);

  void add_to(net::EventLoop& loop) const;
  struct News {
    std::vector<membership::Frame> frames;  // to this agent
    std::vector<membership::NodeId> dead;   // each once
    std::vector<std::string> nobody_at;     // addresses without a listener
    struct UnauthenticatedPeer {
      std::string address;
      std::string why;  // the reason why the peer is not an agent of this job
    };
    std::vector<UnauthenticatedPeer> unauthenticated_peers;
    std::vector<net::PendingConnection>
        visitors;  // connections with the handshake of a user's program
  };
  News serve();
  // Returns true if no messages are left for reachable agents.
  bool flushed() const;

 private:
  struct Incoming;
  class Outgoing;

  void let_in();
  void admit(net::PendingConnection connection);
  void report_unauthenticated_peer(const std::string& text);
  void report_damage(const std::string& other, const std::string& what);
  bool handle(Incoming& incoming);
  void take(membership::Frame frame);
  // `id` is at the address; the node that was there before is dead.
  void note_address(membership::NodeId id, const std::string& address);
  // The address refuses connections: the node there and the addressees of its messages are dead.
  void nobody_at(const std::string& address, const std::set<membership::NodeId>& addressees);
  void report_dead(membership::NodeId id);
  Outgoing& outgoing(const std::string& address);
  membership::Channel channel(std::string_view own_nonce, std::string_view other_nonce) const;

  net::FileDescriptor listener_;
  AgentLinksOptions options_;
  net::PendingConnections pending_;
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::map<std::string, std::unique_ptr<Outgoing>> outgoing_;  // by address
  std::map<std::string, membership::NodeId> at_;               // last known node at each address
  std::set<membership::NodeId> dead_;
  News news_;
  Clock::time_point next_notice_{};
  std::size_t suppressed_ = 0;  // unauthenticated peers since the last log line about one
};

}  // namespace tandem::elastic
