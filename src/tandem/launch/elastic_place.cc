#include "tandem/launch/elastic_place.h"

#include <cstring>

#include "tandem/core/error.h"
#include "tandem/launch/open_job.h"
#include "tandem/rendezvous/address.h"
#include "tandem/rendezvous/connect.h"
#include "tandem/rendezvous/job_token.h"

namespace tandem::launch {
namespace {

using rendezvous::Deadline;
using std::chrono::milliseconds;

constexpr milliseconds kTry{5000};
constexpr double kNoticeEverySeconds = 30;

std::uint64_t hash_of(const std::string& job) {
  const rendezvous::ProofCode code = rendezvous::prove("", {"tandem run", job});
  std::uint64_t hash = 0;
  std::memcpy(&hash, code.data(), sizeof hash);
  return hash;
}

// The address of this host on the way to the endpoint, once that answers.
std::string address_towards(const HostAddress& endpoint, milliseconds limit,
                            const AgentParts& parts, const std::function<void()>& check) {
  const rendezvous::Handshake handshake{
      .say = elastic::make_greeting(),
      .answer_bytes = elastic::kGreetingBytes,
      .accept = [](const std::string& answer) { return elastic::is_greeting(answer); },
      .check = check};
  const Deadline deadline(limit);
  double told = -kNoticeEverySeconds + 5;
  std::string failure;
  while (true) {
    const std::string hosts[] = {endpoint.host};
    const Deadline attempt{milliseconds(deadline.remaining_ms(kTry))};
    const rendezvous::Connected connected =
        rendezvous::connect_first(hosts, endpoint.port, handshake, attempt, failure);
    if (connected.socket) return rendezvous::own_address(connected.socket);
    if (deadline.passed()) break;
    if (deadline.elapsed_seconds() - told >= kNoticeEverySeconds) {
      told = deadline.elapsed_seconds();
      parts.log(fmt::format("waiting for the agent at {}:{} ({})", endpoint.host, endpoint.port,
                            failure));
    }
    const Deadline pause{milliseconds(100)};
    while (!pause.passed()) {
      check();
      ::poll(nullptr, 0, 20);
    }
  }
  raise<CommError>(
      "no agent answered at {}:{} within {:.0f} s ({}); start tandem run with the same "
      "--rdzv-endpoint or --master-addr there",
      endpoint.host, endpoint.port, deadline.limit_seconds(), failure);
}

}  // namespace

elastic::NodePlace find_node_place(const AgentParts& parts, const std::function<void()>& check) {
  const RunOptions& options = parts.options;
  const MeetingPlan plan = plan_meeting(options, names_of_this_machine());
  const auto number = [](int count) { return static_cast<std::uint32_t>(count); };
  elastic::NodePlace place;
  place.host_name = rendezvous::host_name();
  place.job = hash_of(options.rdzv_id);
  place.token = parts.job_token;
  place.patience = join_timeout(options);
  const bool fixed = options.backend == Backend::kStatic;
  place.bounds = {number(fixed ? options.max_nodes : options.min_nodes), number(options.max_nodes)};
  if (plan.hosts) {
    try {
      place.listener = rendezvous::listen_tcp(/*loopback_only=*/false, plan.where.port);
      place.founder = true;
      const int port = rendezvous::local_port(place.listener);
      warn_of_open_port(parts, port);
      place.address = rendezvous::join_host(plan.where.host, port);
      return place;
    } catch (const ConfigError&) {
      if (!plan.may_join) throw;  // else another agent of this machine is there
    }
  }
  place.listener = rendezvous::listen_tcp(/*loopback_only=*/false, 0);
  std::string host = options.local_addr;
  const std::string seen = address_towards(plan.where, place.patience, parts, check);
  if (host.empty()) host = seen;
  place.address = rendezvous::join_host(host, rendezvous::local_port(place.listener));
  place.contacts = {rendezvous::join_host(plan.where.host, plan.where.port)};
  return place;
}

}  // namespace tandem::launch
