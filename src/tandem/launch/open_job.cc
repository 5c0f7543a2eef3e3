#include "tandem/launch/open_job.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/rendezvous/address.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/rendezvous/interfaces.h"

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;

constexpr int kDefaultC10dPort = 29400;

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1";
}

milliseconds conf_seconds(const RunOptions& options, const std::string& key,
                          milliseconds otherwise) {
  const auto found = options.rdzv_conf.find(key);
  if (found == options.rdzv_conf.end()) return otherwise;
  double seconds = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0) ||
      seconds > 1e6) {
    raise<ConfigError>("--rdzv-conf {}={} is not a number of seconds", key, text);
  }
  return milliseconds(std::lround(seconds * 1000));
}

// As torchrun's heartbeats: number of consecutive missed ones.
milliseconds silence(const RunOptions& options) {
  const milliseconds interval =
      conf_seconds(options, "keep_alive_interval", std::chrono::seconds(5));
  const auto found = options.rdzv_conf.find("keep_alive_max_attempt");
  const int attempts = found == options.rdzv_conf.end() ? 3 : std::atoi(found->second.c_str());
  return std::max(milliseconds(1500), interval * std::clamp(attempts, 1, 1000));
}

AgentInfo info_of(const AgentParts& parts, bool fixed) {
  AgentInfo info;
  info.run_id = parts.options.rdzv_id;
  info.host = rendezvous::host_name();
  info.pid = ::getpid();
  info.workers = static_cast<int>(parts.placement.workers.size());
  info.role = parts.options.role;
  info.node_rank = fixed ? parts.options.node_rank : -1;
  return info;
}

JobRules rules_of(const AgentParts& parts, const EndpointPlan& plan, int port) {
  const RunOptions& options = parts.options;
  JobRules rules;
  rules.fixed_places = !plan.local && options.backend == Backend::kStatic;
  rules.max_nodes = plan.local ? 1 : options.max_nodes;
  rules.min_nodes = plan.local || rules.fixed_places ? rules.max_nodes : options.min_nodes;
  rules.max_restarts = options.max_restarts;
  rules.own_job = parts.program.own_job;
  rules.run_id = options.rdzv_id;
  rules.master_addr = !options.local_addr.empty() ? options.local_addr : plan.where.host;
  if (plan.local && is_loopback(rules.master_addr)) rules.master_addr = "127.0.0.1";
  rules.master_port = port;
  rules.last_call = conf_seconds(options, "last_call_timeout", rules.last_call);
  rules.join_timeout = join_timeout(options);
  return rules;
}

// The agent's port, followed by the ports that rank 0 of tandem's collectives takes one after the
// other (rendezvous/identity.cc).
struct Ports {
  rendezvous::FileDescriptor listener;
  std::vector<rendezvous::FileDescriptor> of_ranks;
};

// Ports chosen by a user are not checked: they apply to all agents, and rank 0 reports a port in
// use. Ports chosen here are followed by free ones.
Ports open_ports(const EndpointPlan& plan, int max_restarts) {
  constexpr int kTries = 32;
  const int wanted = plan.where.port == 0 ? 1 + std::min(max_restarts, 3) : 0;
  std::vector<Ports> refused;  // kept open, or the kernel would return them again
  while (true) {
    Ports ports{rendezvous::listen_tcp(plan.local && is_loopback(plan.where.host), plan.where.port),
                {}};
    const int port = rendezvous::local_port(ports.listener);
    for (int next = port + 1; next <= std::min(port + wanted, 65535); ++next) {
      ports.of_ranks.push_back(rendezvous::hold_port(next));
      if (!ports.of_ranks.back()) break;
    }
    const bool all =
        static_cast<int>(ports.of_ranks.size()) == wanted && (wanted == 0 || ports.of_ranks.back());
    if (all || refused.size() == kTries) return ports;
    refused.push_back(std::move(ports));
  }
}

}  // namespace

milliseconds join_timeout(const RunOptions& options) {
  const milliseconds fixed = conf_seconds(options, "timeout", std::chrono::minutes(10));
  return conf_seconds(options, "join_timeout", fixed);
}

void warn_of_open_port(const AgentParts& parts, int port) {
  if (!parts.job_token.empty()) return;
  parts.log(fmt::format(
      "no TANDEM_JOB_TOKEN: any process that can reach port {} of this host can join or disturb "
      "the job; "
      "give all agents the same one, as with: export TANDEM_JOB_TOKEN=$(openssl rand -hex 16)",
      port));
}

bool names_this_machine(const std::string& host, const std::vector<std::string>& own_names) {
  return is_loopback(host) || std::any_of(own_names.begin(), own_names.end(), [&](const auto& own) {
           return own == host || own == host.substr(0, host.find('.')) ||
                  own.substr(0, own.find('.')) == host;
         });
}

std::vector<std::string> names_of_this_machine() {
  std::vector<std::string> names = rendezvous::own_addresses("");
  names.push_back(rendezvous::host_name());
  return names;
}

HostAddress parse_endpoint(const std::string& endpoint, int default_port) {
  const auto where = rendezvous::split_host(endpoint);
  const int port = where ? where->number.value_or(default_port) : 0;
  if (!where || port > 65535) {
    raise<ConfigError>("'{}' is not of the form HOST:PORT, with a port up to 65535", endpoint);
  }
  return {where->host, port};
}

EndpointPlan plan_endpoint(const RunOptions& options, const std::vector<std::string>& own_names) {
  EndpointPlan plan;
  const bool single = options.standalone || options.max_nodes == 1;
  const bool port_given = options.master_port || !options.rdzv_endpoint.empty();
  if (options.standalone || (single && !port_given)) {
    plan.local = plan.hosts = true;
    plan.where = {"127.0.0.1", 0};
    return plan;
  }
  if (options.rdzv_endpoint.empty()) {
    plan.where = {options.master_addr,
                  options.master_port.value_or(rendezvous::kDefaultMasterPort)};
  } else {
    const bool fixed = options.backend == Backend::kStatic;
    plan.where = parse_endpoint(options.rdzv_endpoint,
                                fixed ? rendezvous::kDefaultMasterPort : kDefaultC10dPort);
  }
  plan.local = single;
  if (single || options.backend == Backend::kStatic) {
    plan.hosts = single || options.node_rank == 0;
    return plan;
  }
  const auto is_host = options.rdzv_conf.find("is_host");
  const bool decided = is_host != options.rdzv_conf.end();
  const std::string word = decided ? is_host->second : "";
  plan.hosts = decided ? (word == "1" || word == "true" || word == "True" || word == "yes")
                       : names_this_machine(plan.where.host, own_names);
  plan.may_join = plan.hosts && !decided;
  return plan;
}

std::unique_ptr<JobLink> open_job(const AgentParts& parts, const std::function<void()>& check) {
  const RunOptions& options = parts.options;
  const EndpointPlan plan = plan_endpoint(options, names_of_this_machine());
  const bool fixed = !plan.local && options.backend == Backend::kStatic;
  const AgentInfo info = info_of(parts, fixed);
  if (plan.hosts) {
    try {
      Ports ports = open_ports(plan, options.max_restarts);
      const int port = rendezvous::local_port(ports.listener);
      if (!plan.local) warn_of_open_port(parts, port);
      auto host =
          std::make_unique<JobHost>(std::move(ports.listener), rules_of(parts, plan, port), info,
                                    plan.local ? "" : parts.job_token, silence(options), parts.log);
      host->keep_ports(std::move(ports.of_ranks));
      return host;
    } catch (const ConfigError&) {
      if (!plan.may_join) throw;  // otherwise another agent of this machine is the host
    }
  }
  return join_job(plan.where, info, parts.job_token, join_timeout(options), silence(options),
                  parts.log, check);
}

}  // namespace tandem::launch
