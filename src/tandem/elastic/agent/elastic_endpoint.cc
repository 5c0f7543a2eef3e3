#include "tandem/elastic/agent/elastic_endpoint.h"

#include <cstring>
#include <optional>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/launch/run/endpoint_plan.h"
#include "tandem/net/address.h"
#include "tandem/net/connect.h"
#include "tandem/net/interfaces.h"
#include "tandem/net/job_token.h"

namespace tandem::elastic {
namespace {

using net::Deadline;
using std::chrono::milliseconds;

constexpr milliseconds kTry{5000};
constexpr milliseconds kTryKnown{1000};
constexpr double kNoticeEverySeconds = 30;

std::uint64_t hash_of(const std::string& job) {
  const net::ProofCode code = net::prove("", {"tandem run", job});
  std::uint64_t hash = 0;
  std::memcpy(&hash, code.data(), sizeof hash);
  return hash;
}

// The endpoint, once it answers at one of its addresses.
struct Towards {
  std::string own;    // address of this host on the way there
  std::string there;  // "host:port" that answered
};

// One attempt.
std::optional<Towards> try_at(const std::vector<std::string>& hosts, int port, milliseconds limit,
                              const std::function<void()>& check, std::string& failure) {
  const net::Handshake handshake{
      .request = net::make_handshake(),
      .answer_bytes = net::kHandshakeBytes,
      .accept = [](const std::string& answer) { return net::is_handshake(answer); },
      .check = check};
  const net::Connected connected =
      net::connect_first(hosts, port, handshake, Deadline(limit), failure);
  if (!connected.socket) return std::nullopt;
  return Towards{net::own_address(connected.socket), net::join_host(connected.address, port)};
}

// The endpoint may be gone for good: tries another agent of the job.
std::optional<Towards> try_known(ExternalLock* lock, const std::function<void()>& check) {
  if (lock == nullptr) return std::nullopt;
  for (const std::string& address : lock->addresses()) {
    const auto where = net::split_host(address);
    std::string failure;
    if (!where || !where->number) continue;
    if (auto towards = try_at({where->host}, *where->number, kTryKnown, check, failure))
      return towards;
  }
  return std::nullopt;
}

Towards find_towards(const std::vector<std::string>& hosts, int port, milliseconds limit,
                     const launch::AgentParts& parts, ExternalLock* lock,
                     const std::function<void()>& check) {
  const Deadline deadline(limit);
  double last_notice = -kNoticeEverySeconds + 5;
  std::string failure;
  while (true) {
    const milliseconds attempt{deadline.remaining_ms(kTry)};
    if (const auto towards = try_at(hosts, port, attempt, check, failure)) return *towards;
    if (const auto towards = try_known(lock, check)) return *towards;
    if (deadline.passed()) break;
    if (deadline.elapsed_seconds() - last_notice >= kNoticeEverySeconds) {
      last_notice = deadline.elapsed_seconds();
      parts.log(fmt::format("waiting for the agent at {}:{} ({})", fmt::join(hosts, " or "), port,
                            failure));
    }
    const Deadline pause{milliseconds(100)};
    while (!pause.passed()) {
      check();
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  raise<CommError>("no agent answered at {}:{} within {:.0f} s ({}); {}", fmt::join(hosts, " or "),
                   port, deadline.limit_seconds(), failure,
                   parts.known_endpoint
                       ? "TANDEM_IFNAME chooses the interfaces whose addresses agents publish"
                       : "start tandem run with the same --rdzv-endpoint or --master-addr there");
}

// Other hosts cannot reach such a host, and it cannot reach them.
void warn_of_loneliness(const launch::AgentParts& parts) {
  if (parts.options.local_addr.starts_with("127.") || !net::own_addresses("").empty()) return;
  parts.log(fmt::format(
      "warning: of {} nodes this one has no network interface but loopback: agents on other hosts "
      "cannot meet it. Give it a network (`ip addr` shows what is there; TANDEM_IFNAME chooses); "
      "for agents of this machine only, write --rdzv-endpoint 127.0.0.1:PORT --local-addr "
      "127.0.0.1 on all of them",
      parts.options.max_nodes));
}

// The same address is known to all through mpirun. An mpirun job starts with all of its ranks.
void address_at(launch::KnownEndpoint& known_endpoint, const launch::AgentParts& parts,
                const std::function<void()>& check, ElasticEndpoint& endpoint) {
  endpoint.host = parts.options.node_rank;
  endpoint.bounds.first_workers = static_cast<std::uint32_t>(parts.shards);
  endpoint.advice =
      "see the output of the ranks that are not ready, or leave their host out of the hostfile";
  endpoint.bootstrap_node = static_cast<bool>(known_endpoint.listener);
  if (endpoint.bootstrap_node) {
    endpoint.listener = std::move(known_endpoint.listener);
    endpoint.address = net::join_host(known_endpoint.hosts.front(), known_endpoint.port);
    return;
  }
  endpoint.listener = net::listen_tcp(/*loopback_only=*/false, 0);
  const Towards towards = find_towards(known_endpoint.hosts, known_endpoint.port, endpoint.timeout,
                                       parts, endpoint.lock.get(), check);
  endpoint.address = net::join_host(towards.own, net::local_port(endpoint.listener));
  endpoint.contacts = {towards.there};
}

}  // namespace

ElasticEndpoint find_elastic_endpoint(launch::AgentParts& parts,
                                      const std::shared_ptr<ExternalLock>& lock,
                                      const std::function<void()>& check) {
  const launch::RunOptions& options = parts.options;
  const auto number = [](int count) { return static_cast<std::uint32_t>(count); };
  ElasticEndpoint endpoint;
  endpoint.host_name = net::host_name();
  endpoint.job = hash_of(options.rdzv_id);
  endpoint.token = parts.job_token;
  endpoint.timeout = launch::join_timeout(options);
  endpoint.lock = lock;
  endpoint.host_timeout = parts.host_timeout;
  const bool fixed = options.backend == launch::Backend::kStatic;
  endpoint.bounds = {number(fixed ? options.max_nodes : options.min_nodes),
                     number(options.max_nodes)};
  warn_of_loneliness(parts);
  if (parts.known_endpoint) {
    address_at(*parts.known_endpoint, parts, check, endpoint);
    return endpoint;
  }
  const launch::EndpointPlan plan = launch::plan_endpoint(options, launch::names_of_this_machine());
  if (plan.hosts) {
    try {
      endpoint.listener = net::listen_tcp(/*loopback_only=*/false, plan.where.port);
      endpoint.bootstrap_node = true;
      const int port = net::local_port(endpoint.listener);
      launch::warn_of_open_port(parts, port);
      endpoint.address = net::join_host(plan.where.host, port);
      if (endpoint.lock) endpoint.contacts = endpoint.lock->addresses();
      return endpoint;
    } catch (const ConfigError&) {
      if (!plan.may_join) throw;  // otherwise another agent of this machine is there
    }
  }
  endpoint.listener = net::listen_tcp(/*loopback_only=*/false, 0);
  std::string host = options.local_addr;
  const Towards towards = find_towards({plan.where.host}, plan.where.port, endpoint.timeout, parts,
                                       endpoint.lock.get(), check);
  if (host.empty()) host = towards.own;
  endpoint.address = net::join_host(host, net::local_port(endpoint.listener));
  endpoint.contacts = {net::join_host(plan.where.host, plan.where.port)};
  if (towards.there != endpoint.contacts.front()) endpoint.contacts.push_back(towards.there);
  return endpoint;
}

}  // namespace tandem::elastic
