// An agent's part in its job: it reports the state of its workers and receives orders. The agent
// that hosts the job calls the coordinator in its own process, the others use a connection.
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/launch/coordinator.h"
#include "tandem/launch/line_socket.h"
#include "tandem/launch/store_server.h"
#include "tandem/rendezvous/pending_connections.h"

namespace tandem::launch {

class JobLink {
 public:
  virtual ~JobLink() = default;
  virtual void ready() = 0;
  virtual void failed(const std::vector<Failure>& failures, bool final) = 0;
  virtual void succeeded() = 0;
  // This node leaves, with the reason.
  virtual void leave(const std::string& reason) = 0;

  virtual void add_to(std::vector<pollfd>& waits) const = 0;
  // Moves as much as possible; returns the received orders. Throws CommError if the host of the job
  // is lost.
  virtual std::vector<Order> serve() = 0;
  // Longest sleep before the next call.
  virtual std::chrono::milliseconds poll_timeout() const = 0;
  // After the end of the job: notifies the other agents, and waits briefly for that.
  virtual void close() {}
};

using Log = std::function<void(const std::string& line)>;

// The agent that hosts the job: listens for agents and for TCPStore clients at one port, and tells
// them apart by their first byte.
class JobHost final : public JobLink {
 public:
  // With a token, only peers that prove that they have it count as agents, and only the hosts of
  // such agents may use the store; on this host only this process's user and root. `silence`:
  // allowed silence of an agent.
  JobHost(rendezvous::FileDescriptor listener, JobRules rules, AgentInfo own, std::string token,
          std::chrono::milliseconds silence, Log log);
  ~JobHost() override;

  // Ports that ranks will request, reserved for them until the job ends.
  void keep_ports(std::vector<rendezvous::FileDescriptor> ports) { ports_ = std::move(ports); }
  void ready() override;
  void failed(const std::vector<Failure>& failures, bool final) override;
  void succeeded() override;
  void leave(const std::string& reason) override;
  void add_to(std::vector<pollfd>& waits) const override;
  std::vector<Order> serve() override;
  std::chrono::milliseconds poll_timeout() const override;
  void close() override;

 private:
  struct AgentConnection;
  void let_in();
  void admit(rendezvous::PendingConnection connection);
  void handle_clients();
  bool handle(AgentConnection& connection);
  void introduce(AgentConnection& connection, const nlohmann::json& line);
  void take_word(AgentConnection& connection, const nlohmann::json& line);
  void drop(AgentConnection& connection, const std::string& reason);
  void deliver();
  bool may_use_store(const std::string& address) const;
  bool is_of_another_user(const rendezvous::FileDescriptor& socket);

  rendezvous::FileDescriptor listener_;
  std::vector<rendezvous::FileDescriptor> ports_;
  Coordinator coordinator_;
  Coordinator::AgentId self_;
  std::string token_;
  std::chrono::milliseconds silence_;
  Log log_;
  rendezvous::PendingConnections pending_;
  StoreServer store_;
  std::vector<std::unique_ptr<AgentConnection>> agent_connections_;
  std::vector<Order> own_orders_;
  std::vector<std::string> agent_addresses_;
  bool logged_other_user_ = false;
};

struct HostAddress {
  std::string host;
  int port = 0;
};

// Connects to the host of the job and introduces this agent, with retries until `timeout`; `check`
// is called several times a second meanwhile and throws to end the wait. Throws ConfigError if the
// host refuses this agent, CommError if it is unreachable.
std::unique_ptr<JobLink> join_job(const HostAddress& where, const AgentInfo& info,
                                  const std::string& token, std::chrono::milliseconds timeout,
                                  std::chrono::milliseconds silence, const Log& log,
                                  const std::function<void()>& check);

}  // namespace tandem::launch
