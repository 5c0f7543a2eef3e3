#include "apps/stand_in.h"

#include <fmt/format.h>

#include <csignal>

#include "apps/agent_process.h"
#include "apps/command/own_path.h"
#include "tandem/launch/run_flags.h"
#include "tandem/launch/stand_in.h"
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
                            const Voice& voice) {
  launch::AgentParts parts = agent_parts(invocation.environment, voice);
  std::vector<std::string> line = {fmt::format("{}.py", command)};
  line.insert(line.end(), invocation.words.begin(), invocation.words.end());
  parts.options = launch::parse_run_line(line, Environment());
  parts.options.log_format = voice.format;
  parts.program.command = own_command(invocation);
  parts.program.own_job = true;
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
  parts.agent = agent_of(command, invocation, agents);
  parts.log = parts.agent.log;
  parts.run_agent = [&environment](launch::AgentParts agent) {
    return run_agent_process(std::move(agent), environment);
  };
  std::signal(SIGPIPE, SIG_IGN);
  return launch::stand_in(std::move(parts));
}

}  // namespace tandem::apps
