#include "apps/proxy.h"

#include <fmt/format.h>

#include <csignal>

#include "apps/agent_process.h"
#include "apps/command/own_path.h"
#include "tandem/launch/mpirun/proxy.h"
#include "tandem/launch/run/run_flags.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::apps {
namespace {

// The command that mpirun has started this process with.
std::vector<std::string> own_command(const Invocation& invocation) {
  std::vector<std::string> words = {own_path()};
  if (!invocation.subcommand.empty()) words.push_back(invocation.subcommand);
  words.insert(words.end(), invocation.words.begin(), invocation.words.end());
  return words;
}

launch::AgentParts agent_of(std::string_view command, const Invocation& invocation,
                            const LogPrefix& log_prefix) {
  launch::AgentParts parts = agent_parts(invocation.environment, log_prefix);
  std::vector<std::string> line = {fmt::format("{}.py", command)};
  line.insert(line.end(), invocation.words.begin(), invocation.words.end());
  parts.options = launch::parse_run_line(line, Environment());
  parts.options.log_format = log_prefix.format;
  parts.command = own_command(invocation);
  return parts;
}

}  // namespace

std::optional<int> run_proxy_for_rank(std::string_view command, const Invocation& invocation,
                                      const trainer::TrainingArguments& training,
                                      const LogPrefix& log_prefix) {
  const Environment& environment = invocation.environment;
  launch::ProxyParts parts;
  parts.identity = rendezvous::identify(environment);
  const launch::ProxyRequest wish = launch::proxy_request(environment, parts.identity);
  if (!wish.note.empty() && parts.identity.rank == 0) write_log(log_prefix, wish.note, "WARNING");
  // An MPI library needs the processes that mpirun has started.
  if (!wish.wanted || training.ddp_backend == trainer::DdpBackend::kMpi) return std::nullopt;
  LogPrefix agents = log_prefix;
  agents.rank.reset();
  agents.name = fmt::format("tandem {}", command);
  parts.host_name = environment.get("MPIR_CVAR_CH3_INTERFACE_HOSTNAME").value_or("");
  parts.timeout = std::chrono::seconds(training.ddp_timeout);
  parts.stall_timeout =
      std::chrono::seconds(environment.get_int("TANDEM_STALL_TIMEOUT", 0, 86400).value_or(10));
  parts.agent = agent_of(command, invocation, agents);
  parts.log = parts.agent.log;
  parts.run_agent = [&environment](launch::AgentParts agent) {
    return run_agent_process(std::move(agent), nullptr, environment);
  };
  std::signal(SIGPIPE, SIG_IGN);
  return launch::run_proxy(std::move(parts));
}

}  // namespace tandem::apps
