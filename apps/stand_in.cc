#include "apps/stand_in.h"

#include <fmt/format.h>

#include <csignal>
#include <sstream>

#include "apps/command/own_path.h"
#include "apps/monitor/agent_metrics.h"
#include "tandem/core/file.h"
#include "tandem/launch/run_flags.h"
#include "tandem/launch/stand_in.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::apps {
namespace {

// As mpirun has started this process.
std::vector<std::string> own_command() {
  std::istringstream line(read_file("/proc/self/cmdline"));
  std::vector<std::string> words;
  for (std::string word; std::getline(line, word, '\0');) words.push_back(std::move(word));
  words.at(0) = own_path();
  return words;
}

launch::AgentParts agent_parts(std::string_view command, const Invocation& invocation,
                               const Voice& voice) {
  const Environment& environment = invocation.environment;
  launch::AgentParts parts;
  std::vector<std::string> line = {fmt::format("{}.py", command)};
  line.insert(line.end(), invocation.words.begin(), invocation.words.end());
  parts.options = launch::parse_run_line(line, Environment());
  parts.options.log_format = voice.format;
  parts.program.command = own_command();
  parts.program.own_job = true;
  parts.inherited = inherited_environment();
  parts.temporary = environment.get("TMPDIR").value_or("/tmp");
  parts.error_file = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  parts.status_interval_s = status_interval(environment);
  parts.log = [voice](const std::string& text) { say(voice, text); };
  return parts;
}

}  // namespace

std::optional<int> stand_in_for_rank(std::string_view command, const Invocation& invocation,
                                     const trainer::TrainingArguments& training,
                                     const Voice& voice) {
  const Environment& environment = invocation.environment;
  launch::StandInParts parts;
  parts.identity = rendezvous::identify(environment);
  const launch::StandInWish wish = launch::stand_in_wish(environment, parts.identity);
  if (!wish.note.empty() && parts.identity.rank == 0) say(voice, wish.note, "WARNING");
  // An MPI library needs the processes that mpirun has started.
  if (!wish.wanted || training.ddp_backend == trainer::DdpBackend::kMpi) return std::nullopt;
  Voice agents = voice;
  agents.rank.reset();
  agents.name = fmt::format("tandem {}", command);
  parts.host_name = environment.get("MPIR_CVAR_CH3_INTERFACE_HOSTNAME").value_or("");
  parts.patience = std::chrono::seconds(training.ddp_timeout);
  parts.stall_timeout =
      std::chrono::seconds(environment.get_int("TANDEM_STALL_TIMEOUT", 0, 86400).value_or(10));
  parts.agent = agent_parts(command, invocation, agents);
  parts.log = parts.agent.log;
  parts.run_agent = [&environment](launch::AgentParts agent) {
    AgentMetrics metrics;
    const auto server = agent_server(metrics, environment, agent.log);
    if (server)
      agent.publish = [&metrics](const launch::JobStatus& status) { metrics.publish(status); };
    return launch::run_agent(std::move(agent));
  };
  std::signal(SIGPIPE, SIG_IGN);
  return launch::stand_in(std::move(parts));
}

}  // namespace tandem::apps
