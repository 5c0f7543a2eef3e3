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
constexpr milliseconds kPatience{10000};
constexpr std::size_t kMaxStrangers = 1024;
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

struct JobHost::Guest {
  Guest(FileDescriptor socket, std::string received)
      : line(std::move(socket), std::move(received)) {}
  LineSocket line;
  Deadline limit{kPatience};  // for its handshake
  std::string host_nonce;
  std::string agent_nonce;
  Coordinator::AgentId agent = -1;  // after its handshake
  Clock::time_point heard = Clock::now();
  bool leaving = false;  // refused: only waiting output is sent
};

JobHost::JobHost(FileDescriptor listener, JobRules rules, AgentCard own, std::string token,
                 milliseconds silence, Log log)
    : listener_(std::move(listener)),
      coordinator_(std::move(rules), Clock::now()),
      self_(coordinator_.arrive(std::move(own), Clock::now())),
      token_(std::move(token)),
      silence_(silence),
      log_(std::move(log)),
      lobby_(kPatience, kMaxStrangers) {}

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
  if (*owner != rendezvous::kNobody && !std::exchange(told_of_another_user_, true))
    log_(fmt::format("user {} of this host asked for the job's store and was refused", *owner));
  return true;
}

void JobHost::admit(rendezvous::Guest guest) {
  const std::string address = rendezvous::peer_address(guest.socket);
  if (guest.received.front() != '{') {
    // Own workers connect from any of this host's own addresses.
    const bool known = may_use_store(address) || address == rendezvous::own_address(guest.socket);
    if (known && !is_of_another_user(guest.socket))
      store_.adopt(std::move(guest.socket), std::move(guest.received));
    return;
  }
  auto agent = std::make_unique<Guest>(std::move(guest.socket), std::move(guest.received));
  agent->host_nonce = wire::hex(rendezvous::make_nonce());
  guests_.push_back(std::move(agent));
}

void JobHost::let_in() {
  lobby_.accept_from(listener_, [] { return std::string(); });
  for (rendezvous::Guest& guest : lobby_.take_complete(wanted_bytes)) admit(std::move(guest));
}

// The first line has a nonce and is answered with a proof; the second has the card.
void JobHost::introduce(Guest& guest, const json& line) {
  if (guest.agent_nonce.empty()) {
    if (line.value("tandem_agent", 0) != wire::kVersion)
      raise<DataError>("agents of the job must be of one version of tandem");
    guest.agent_nonce = line.value("nonce", "");
    if (guest.agent_nonce.size() < 16 || guest.agent_nonce.size() > 128)
      raise<DataError>("an agent's nonce has {} characters", guest.agent_nonce.size());
    guest.line.send(
        json{{"nonce", guest.host_nonce},
             {"token", !token_.empty()},
             {"proof", wire::proof(token_, "host", guest.host_nonce, guest.agent_nonce, "")}}
            .dump());
    return;
  }
  const std::string card = line.value("card", "");
  const std::string proof = wire::proof(token_, "agent", guest.host_nonce, guest.agent_nonce, card);
  const std::string given = line.value("proof", "");
  if (given.size() != proof.size() || !std::equal(proof.begin(), proof.end(), given.begin())) {
    raise<DataError>("TANDEM_JOB_TOKEN of this agent is not the job's");
  }
  guest.agent = coordinator_.arrive(wire::card_from(wire::parse(card)), Clock::now());
  rendezvous::watch_host(guest.line.socket(), kHostSilence);
  agent_addresses_.push_back(rendezvous::peer_address(guest.line.socket()));
  guest.line.send(json{{"welcome", true}}.dump());
}

void JobHost::take_word(Guest& guest, const json& line) {
  const std::string word = line.value("say", "");
  const auto now = Clock::now();
  if (word == "ready") {
    coordinator_.ready(guest.agent, now);
  } else if (word == "succeeded") {
    coordinator_.succeeded(guest.agent, now);
  } else if (word == "leave") {
    drop(guest, line.value("reason", "it leaves").substr(0, 200));
  } else if (word == "failed") {
    std::vector<Failure> failures;
    for (const json& failure : line.at("failures")) failures.push_back(failure_from_json(failure));
    if (failures.empty()) raise<DataError>("a failure of nobody");
    coordinator_.failed(guest.agent, std::move(failures), line.value("final", false), now);
  } else if (word != "alive") {
    raise<DataError>("an unknown word");
  }
}

void JobHost::drop(Guest& guest, const std::string& reason) {
  if (guest.agent >= 0) coordinator_.gone(guest.agent, reason, Clock::now());
  guest.agent = -1;
  guest.leaving = true;
}

// False: no more data will arrive from it.
bool JobHost::hear(Guest& guest) {
  guest.line.serve();
  try {
    while (!guest.leaving) {
      const auto line = guest.line.take_line();
      if (!line) break;
      guest.heard = Clock::now();
      const json data = wire::parse(*line);
      guest.agent < 0 ? introduce(guest, data) : take_word(guest, data);
    }
  } catch (const Error& error) {
    guest.line.send(json{{"refused", error.what()}}.dump());
    drop(guest, fmt::format("it broke the protocol ({})", error.what()));
  } catch (const json::exception&) {
    drop(guest, "it broke the protocol");
  }
  if (!guest.line.ended().empty()) drop(guest, guest.line.ended());
  if (guest.agent >= 0 && Clock::now() - guest.heard > silence_) {
    drop(guest, fmt::format("it has said nothing for {} s", silence_.count() / 1000));
    return false;
  }
  if (guest.agent < 0 && guest.limit.passed()) return false;
  return !guest.leaving || (guest.line.ended().empty() && !guest.line.all_sent());
}

void JobHost::hear_guests() {
  std::erase_if(guests_, [this](const std::unique_ptr<Guest>& guest) { return !hear(*guest); });
}

void JobHost::deliver() {
  for (auto& [agent, order] : coordinator_.take_orders()) {
    // Data of an attempt in the store would mislead the next one.
    if (order.kind == Order::Kind::kStart && order.place.group_rank == 0) store_.clear();
    if (agent == self_) {
      own_orders_.push_back(std::move(order));
      continue;
    }
    for (const auto& guest : guests_) {
      if (guest->agent == agent) guest->line.send(wire::to_json(order).dump());
    }
  }
}

void JobHost::add_to(std::vector<pollfd>& waits) const {
  waits.push_back(lobby_.door(listener_));
  lobby_.add_to(waits);
  store_.add_to(waits);
  for (const auto& guest : guests_) waits.push_back(guest->line.wait());
}

std::vector<Order> JobHost::serve() {
  let_in();
  store_.serve();
  hear_guests();
  coordinator_.tick(Clock::now());
  deliver();
  return std::exchange(own_orders_, {});
}

milliseconds JobHost::nap() const {
  if (!own_orders_.empty()) return milliseconds(0);
  const auto now = Clock::now();
  const auto due = std::chrono::ceil<milliseconds>(coordinator_.next_due(now) - now);
  const milliseconds look = guests_.empty() ? milliseconds(60000) : milliseconds(500);
  return lobby_.nap(std::min(due, look));
}

void JobHost::close() {
  const Deadline deadline(kFarewell);
  while (!deadline.passed() && !guests_.empty()) {
    hear_guests();
    std::vector<pollfd> waits;
    for (const auto& guest : guests_) waits.push_back(guest->line.wait());
    ::poll(waits.data(), waits.size(), deadline.remaining_ms(milliseconds(100)));
  }
}

}  // namespace tandem::launch
