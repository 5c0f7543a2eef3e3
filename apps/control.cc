// `tandem status`, `tandem drain` and `tandem resize`: questions and wishes to an agent of `tandem
// run`, on this host or elsewhere, which answers for its whole job (launch/control/control.h).
#include "tandem/launch/control/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/net/address.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::apps {
namespace {

using launch::AgentAddress;
using launch::ControlRequest;
using launch::JobStatus;
using launch::JobStatuses;

constexpr std::chrono::seconds kLimit{10};
constexpr int kDefaultPort = 29400;  // default port of --rdzv-endpoint

constexpr const char* kJobHelp =
    "process number of the job's `tandem run`, or how its --rdzv-id begins; needed where several "
    "jobs run";
constexpr const char* kAtHelp =
    "HOST[:PORT] of any agent of a job on several hosts, such as its --rdzv-endpoint; without it, "
    "the agents of this user on this host are asked. Needs the job's TANDEM_JOB_TOKEN";

struct Asked {
  AgentAddress agent_address;
  JobStatuses answer;
};

bool same_agent(const JobStatus& a, const JobStatus& b) {
  return a.job == b.job && a.host == b.host && a.agent == b.agent && a.address == b.address;
}

bool knows(const Asked& asked, const JobStatus& status) {
  return std::any_of(asked.answer.agents.begin(), asked.answer.agents.end(),
                     [&](const JobStatus& known) { return same_agent(known, status); });
}

// Agents of `job`, or of all jobs. Agents that exit during the scan are skipped.
std::vector<Asked> ask_here(const std::string& job) {
  std::vector<Asked> found;
  for (const pid_t agent : launch::running_agents()) {
    try {
      Asked asked{{.pid = agent}, launch::ask_status({.pid = agent}, kLimit)};
      if (job.empty() || job == std::to_string(agent) ||
          asked.answer.agents.front().job.starts_with(job))
        found.push_back(std::move(asked));
    } catch (const Error& error) {
      fmt::print(stderr, "tandem: {}\n", error.what());
    }
  }
  if (found.empty()) {
    raise<ConfigError>(
        "no job of `tandem run`{} is running for this user on this host (a job of tandem's own); "
        "for one that runs elsewhere, pass --at HOST:PORT",
        job.empty() ? "" : fmt::format(" with the name or process number '{}'", job));
  }
  return found;
}

Asked ask_there(const std::string& at, const Environment& environment) {
  const auto where = net::split_host(at);
  if (!where) raise<ConfigError>("--at {} is not a HOST:PORT", at);
  AgentAddress agent_address{
      .address = net::join_host(where->host, where->number.value_or(kDefaultPort)),
      .token = rendezvous::job_token_of(environment)};
  if (agent_address.token.empty()) {
    raise<ConfigError>(
        "--at needs the job's secret: set TANDEM_JOB_TOKEN, or TANDEM_JOB_TOKEN_FILE, as for its "
        "agents");
  }
  JobStatuses answer = launch::ask_status(agent_address, kLimit);
  return {std::move(agent_address), std::move(answer)};
}

struct Where {
  std::string at;
  std::string job;

  void add_to(CLI::App& app) {
    app.add_option("--at", at, kAtHelp);
    app.add_option("--job", job, kJobHelp);
  }
  std::vector<Asked> ask(const Environment& environment) const {
    if (at.empty()) return ask_here(job);
    std::vector<Asked> found;
    found.push_back(ask_there(at, environment));
    return found;
  }
};

// ---- what is to change ----

struct Target {
  std::string node;           // host name or address of an agent; empty: the one that is asked
  std::optional<int> number;  // nothing: all of the node
};

std::optional<int> number_from(std::string_view text) {
  int number = 0;
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || next != text.data() + text.size()) return std::nullopt;
  return number;
}

// "2", "node1" or "node1/2".
Target target_from(const std::string& text) {
  if (const auto number = number_from(text)) return {"", number};
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return {text, std::nullopt};
  const auto number = number_from(std::string_view(text).substr(slash + 1));
  if (!number || slash == 0) raise<ConfigError>("'{}' is not a NUMBER, HOST or HOST/NUMBER", text);
  return {text.substr(0, slash), number};
}

bool is_at(const JobStatus& status, const std::string& node) {
  const auto where = net::split_host(status.address);
  return status.host == node || status.address == node || (where && where->host == node);
}

// The address of the agent that `node` names.
std::string address_of(const JobStatuses& job, const std::string& node) {
  std::vector<const JobStatus*> found;
  std::string list;
  for (const JobStatus& status : job.agents) {
    if (is_at(status, node)) found.push_back(&status);
    list += fmt::format("\n  {}  {}", status.host, status.address);
  }
  if (found.size() == 1) return found.front()->address;
  if (found.empty()) raise<ConfigError>("the job has no agent on '{}'; it has:{}", node, list);
  raise<ConfigError>("{} agents of the job are on '{}'; name one by its address:{}", found.size(),
                     node, list);
}

// The agent to ask; agents of one job on this host count as one where it does not matter which.
const Asked& chosen(const std::vector<Asked>& asked, const Target& target) {
  const bool any =
      !target.node.empty() && std::all_of(asked.begin(), asked.end(), [&](const Asked& one) {
        return knows(asked.front(), one.answer.agents.front());
      });
  if (asked.size() == 1 || any) return asked.front();
  std::string list;
  for (const Asked& one : asked) {
    const JobStatus& status = one.answer.agents.front();
    list += fmt::format("\n  --job {}  {} ({})", status.agent, status.program, status.job);
  }
  raise<ConfigError>("{} agents run here; name one of them:{}", asked.size(), list);
}

int change(const Where& where, ControlRequest request, const Target& target,
           const Environment& environment) {
  const std::vector<Asked> asked = where.ask(environment);
  const Asked& agent = chosen(asked, target);
  if (!target.node.empty()) request.node = address_of(agent.answer, target.node);
  fmt::print("{}\n", launch::ask_change(agent.agent_address, request, kLimit));
  return 0;
}

}  // namespace

int show_status(const Invocation& invocation) {
  CLI::App app(
      "Shows the jobs that this user's `tandem run` has on this host, or the one at --at, with the "
      "workers of all their hosts: the view, the computing workers, the last step that is applied, "
      "and how many workers were lost so far.",
      "tandem status");
  Where where;
  bool as_json = false;
  app.add_option("job", where.job, "process number of a `tandem run`, or how its --rdzv-id begins");
  app.add_option("--at", where.at, kAtHelp);
  app.add_flag("--json", as_json, "a line of JSON for each host of each job");
  if (!parse_command(app, invocation.words)) return 0;
  std::vector<JobStatus> shown;
  for (const Asked& asked : where.ask(invocation.environment)) {
    for (const JobStatus& status : asked.answer.agents) {
      if (std::any_of(shown.begin(), shown.end(),
                      [&](const JobStatus& known) { return same_agent(known, status); }))
        continue;
      fmt::print("{}{}", as_json ? launch::to_json(status) : launch::for_people(status),
                 as_json ? "\n" : "");
      shown.push_back(status);
    }
    for (const std::string& address : asked.answer.silent)
      fmt::print(stderr, "tandem: the agent at {} did not answer\n", address);
  }
  return 0;
}

int drain(const Invocation& invocation) {
  CLI::App app(
      "Ends one worker of a running job, or all of one host with its agent, and does not start "
      "them again. The others continue within the step; weights and losses are those of an "
      "undisturbed job. `tandem resize` brings workers back, `tandem run` a host.",
      "tandem drain");
  Where where;
  std::string text;
  app.add_option("what", text,
                 "WORKER (its number on the host of the agent that is asked, as tandem status "
                 "shows it), HOST/WORKER, or HOST: a host's name, or the address of its agent")
      ->required();
  where.add_to(app);
  if (!parse_command(app, invocation.words)) return 0;
  const Target target = target_from(text);
  const auto kind = target.number ? ControlRequest::Kind::kDrain : ControlRequest::Kind::kLeave;
  return change(where, {kind, target.number.value_or(0)}, target, invocation.environment);
}

int resize_job(const Invocation& invocation) {
  CLI::App app(
      "Changes how many workers of a running job a host has, between 1 and --nproc-per-node. "
      "Fewer: the last ones end. More: those that were drained or given up are started again and "
      "join. Weights and losses are those of an undisturbed job.",
      "tandem resize");
  Where where;
  std::string text;
  app.add_option("workers", text,
                 "how many workers are to run on the host of the agent that is asked, or "
                 "HOST/WORKERS")
      ->required();
  where.add_to(app);
  if (!parse_command(app, invocation.words)) return 0;
  const Target target = target_from(text);
  if (!target.number)
    raise<ConfigError>("missing worker count for host {}; expected HOST/WORKERS", text);
  return change(where, {ControlRequest::Kind::kResize, *target.number}, target,
                invocation.environment);
}

}  // namespace tandem::apps
