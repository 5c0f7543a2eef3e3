#include "tandem/launch/run/endpoint_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/net/address.h"
#include "tandem/net/interfaces.h"
#include "tandem/rendezvous/identity.h"

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
  std::vector<std::string> names = net::own_addresses("");
  names.push_back(net::host_name());
  return names;
}

HostAddress parse_endpoint(const std::string& endpoint, int default_port) {
  const auto where = net::split_host(endpoint);
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

}  // namespace tandem::launch
