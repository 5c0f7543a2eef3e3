#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/launch/agent_wire.h"
#include "tandem/launch/job_link.h"
#include "tandem/rendezvous/peer_owner.h"
#include "tandem/rendezvous/torch_store.h"

namespace tandem::launch {
namespace {

using rendezvous::Deadline;
using rendezvous::FileDescriptor;
using std::chrono::milliseconds;
using wire::json;
using Clock = Coordinator::Clock;

// Timeout for the first bytes of a connection, and for an agent's handshake.
constexpr milliseconds kTimeout{10000};
constexpr std::size_t kMaxUnauthenticatedPeers = 1024;
// A host that does not answer the kernel this long is lost.
constexpr milliseconds kHostSilence{5000};
constexpr milliseconds kFarewell{2000};

// Number of bytes that identify a connection: a TCPStore client sends 0 and four bytes, an agent a
// JSON object. 0: neither.
std::size_t wanted_bytes(const std::string& received) {
  if (received.empty()) return 1;
  if (received.front() == '{') return 1;
  return received.front() == rendezvous::torch_store::kValidate ? 1 + sizeof(std::uint32_t) : 0;
}

}  // namespace

struct JobHost::AgentConnection {
  AgentConnection(FileDescriptor socket, std::string received)
      : line(std::move(socket), std::move(received)) {}
  LineSocket line;
  Deadline limit{kTimeout};  // for its handshake
  std::string host_nonce;
  std::string agent_nonce;
  Coordinator::AgentId agent = -1;  // after its handshake
  Clock::time_point heard = Clock::now();
  bool leaving = false;  // refused: only waiting output is sent
};

JobHost::JobHost(FileDescriptor listener, JobRules rules, AgentInfo own, std::string token,
                 milliseconds silence, Log log)
    : listener_(std::move(listener)),
      coordinator_(std::move(rules), Clock::now()),
      self_(coordinator_.arrive(std::move(own), Clock::now())),
      token_(std::move(token)),
      silence_(silence),
      log_(std::move(log)),
      pending_(kTimeout, kMaxUnauthenticatedPeers) {}

JobHost::~JobHost() = default;

void JobHost::ready() {
  coordinator_.ready(self_, Clock::now());
  deliver();
}

void JobHost::failed(const std::vector<Failure>& failures, bool final) {
  coordinator_.failed(self_, failures, final, Clock::now());
  deliver();
}

void JobHost::succeeded() {
  coordinator_.succeeded(self_, Clock::now());
  deliver();
}

void JobHost::leave(const std::string& reason) {
  coordinator_.gone(self_, reason, Clock::now());
  deliver();
}

bool JobHost::may_use_store(const std::string& address) const {
  if (token_.empty() || address == "127.0.0.1" || address == "::1") return true;
  return std::find(agent_addresses_.begin(), agent_addresses_.end(), address) !=
         agent_addresses_.end();
}

// The protocol of the store has no secret. The kernel knows the owner of a connection inside this
// host; a connection without a visible owner comes from another host. A closed one cannot be told
// from another user's. Root is allowed.
bool JobHost::is_of_another_user(const FileDescriptor& socket) {
  const std::optional<uid_t> owner = rendezvous::owner_of_peer(socket);
  if (!owner || *owner == ::geteuid() || *owner == 0) return false;
  if (*owner != rendezvous::kNobody && !std::exchange(logged_other_user_, true))
    log_(fmt::format("user {} of this host asked for the job's store and was refused", *owner));
  return true;
}

void JobHost::admit(rendezvous::PendingConnection connection) {
  const std::string address = rendezvous::peer_address(connection.socket);
  if (connection.received.front() != '{') {
    // Own workers connect from any of this host's own addresses.
    const bool known =
        may_use_store(address) || address == rendezvous::own_address(connection.socket);
    if (known && !is_of_another_user(connection.socket))
      store_.adopt(std::move(connection.socket), std::move(connection.received));
    return;
  }
  auto agent = std::make_unique<AgentConnection>(std::move(connection.socket),
                                                 std::move(connection.received));
  agent->host_nonce = wire::hex(rendezvous::make_nonce());
  agent_connections_.push_back(std::move(agent));
}

void JobHost::let_in() {
  pending_.accept_from(listener_, [] { return std::string(); });
  for (rendezvous::PendingConnection& connection : pending_.take_complete(wanted_bytes))
    admit(std::move(connection));
}

// The first line has a nonce and is answered with a proof; the second has the card.
void JobHost::introduce(AgentConnection& connection, const json& line) {
  if (connection.agent_nonce.empty()) {
    if (line.value("tandem_agent", 0) != wire::kVersion)
      raise<DataError>("agents of the job must be of one version of tandem");
    connection.agent_nonce = line.value("nonce", "");
    if (connection.agent_nonce.size() < 16 || connection.agent_nonce.size() > 128)
      raise<DataError>("an agent's nonce has {} characters", connection.agent_nonce.size());
    connection.line.send(json{
        {"nonce", connection.host_nonce},
        {"token", !token_.empty()},
        {"proof", wire::proof(token_, "host", connection.host_nonce, connection.agent_nonce, "")}}
                             .dump());
    return;
  }
  const std::string info = line.value("agent", "");
  const std::string proof =
      wire::proof(token_, "agent", connection.host_nonce, connection.agent_nonce, info);
  const std::string given = line.value("proof", "");
  if (given.size() != proof.size() || !std::equal(proof.begin(), proof.end(), given.begin())) {
    raise<DataError>("TANDEM_JOB_TOKEN of this agent is not the job's");
  }
  connection.agent = coordinator_.arrive(wire::info_from(wire::parse(info)), Clock::now());
  rendezvous::watch_host(connection.line.socket(), kHostSilence);
  agent_addresses_.push_back(rendezvous::peer_address(connection.line.socket()));
  connection.line.send(json{{"welcome", true}}.dump());
}

void JobHost::take_word(AgentConnection& connection, const json& line) {
  const std::string word = line.value("event", "");
  const auto now = Clock::now();
  if (word == "ready") {
    coordinator_.ready(connection.agent, now);
  } else if (word == "succeeded") {
    coordinator_.succeeded(connection.agent, now);
  } else if (word == "leave") {
    drop(connection, line.value("reason", "it leaves").substr(0, 200));
  } else if (word == "failed") {
    std::vector<Failure> failures;
    for (const json& failure : line.at("failures")) failures.push_back(failure_from_json(failure));
    if (failures.empty()) raise<DataError>("a failure of nobody");
    coordinator_.failed(connection.agent, std::move(failures), line.value("final", false), now);
  } else if (word != "alive") {
    raise<DataError>("an unknown word");
  }
}

void JobHost::drop(AgentConnection& connection, const std::string& reason) {
  if (connection.agent >= 0) coordinator_.gone(connection.agent, reason, Clock::now());
  connection.agent = -1;
  connection.leaving = true;
}

// False: no more data will arrive from it.
bool JobHost::handle(AgentConnection& connection) {
  connection.line.serve();
  try {
    while (!connection.leaving) {
      const auto line = connection.line.take_line();
      if (!line) break;
      connection.heard = Clock::now();
      const json data = wire::parse(*line);
      connection.agent < 0 ? introduce(connection, data) : take_word(connection, data);
    }
  } catch (const Error& error) {
    connection.line.send(json{{"refused", error.what()}}.dump());
    drop(connection, fmt::format("it broke the protocol ({})", error.what()));
  } catch (const json::exception&) {
    drop(connection, "it broke the protocol");
  }
  if (!connection.line.ended().empty()) drop(connection, connection.line.ended());
  if (connection.agent >= 0 && Clock::now() - connection.heard > silence_) {
    drop(connection, fmt::format("it has said nothing for {} s", silence_.count() / 1000));
    return false;
  }
  if (connection.agent < 0 && connection.limit.passed()) return false;
  return !connection.leaving || (connection.line.ended().empty() && !connection.line.all_sent());
}

void JobHost::handle_clients() {
  std::erase_if(agent_connections_, [this](const std::unique_ptr<AgentConnection>& connection) {
    return !handle(*connection);
  });
}

void JobHost::deliver() {
  for (auto& [agent, order] : coordinator_.take_orders()) {
    // Data of an attempt in the store would mislead the next one.
    if (order.kind == Order::Kind::kStart && order.assignment.group_rank == 0) store_.clear();
    if (agent == self_) {
      own_orders_.push_back(std::move(order));
      continue;
    }
    for (const auto& connection : agent_connections_) {
      if (connection->agent == agent) connection->line.send(wire::to_json(order).dump());
    }
  }
}

void JobHost::add_to(std::vector<pollfd>& waits) const {
  waits.push_back(pending_.listener_poll(listener_));
  pending_.add_to(waits);
  store_.add_to(waits);
  for (const auto& connection : agent_connections_) waits.push_back(connection->line.wait());
}

std::vector<Order> JobHost::serve() {
  let_in();
  store_.serve();
  handle_clients();
  coordinator_.tick(Clock::now());
  deliver();
  return std::exchange(own_orders_, {});
}

milliseconds JobHost::poll_timeout() const {
  if (!own_orders_.empty()) return milliseconds(0);
  const auto now = Clock::now();
  const auto due = std::chrono::ceil<milliseconds>(coordinator_.next_due(now) - now);
  const milliseconds look = agent_connections_.empty() ? milliseconds(60000) : milliseconds(500);
  return pending_.poll_timeout(std::min(due, look));
}

void JobHost::close() {
  const Deadline deadline(kFarewell);
  while (!deadline.passed() && !agent_connections_.empty()) {
    handle_clients();
    std::vector<pollfd> waits;
    for (const auto& connection : agent_connections_) waits.push_back(connection->line.wait());
    ::poll(waits.data(), waits.size(), deadline.remaining_ms(milliseconds(100)));
  }
}

}  // namespace tandem::launch
