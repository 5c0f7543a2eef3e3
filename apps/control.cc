// `tandem status`, `tandem drain` and `tandem resize`: questions and wishes to the agents of
// `tandem run` on this host (src/tandem/launch/control_socket.h).
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "tandem/core/error.h"
#include "tandem/launch/control_socket.h"

namespace tandem::apps {
namespace {

using launch::ControlRequest;
using launch::JobStatus;

constexpr std::chrono::seconds kLimit{10};

constexpr const char* kJobHelp =
    "process number of the job's `tandem run`, or how its --rdzv-id begins; needed where several "
    "jobs run";

// Of those that `job` names, or of all. Who ends meanwhile is none.
std::vector<JobStatus> jobs(const std::string& job) {
  std::vector<JobStatus> found;
  for (const pid_t agent : launch::running_agents()) {
    try {
      JobStatus status = launch::ask_status(agent, kLimit);
      if (job.empty() || job == std::to_string(agent) || status.job.starts_with(job))
        found.push_back(std::move(status));
    } catch (const Error& error) {
      fmt::print(stderr, "tandem: {}\n", error.what());
    }
  }
  if (found.empty()) {
    raise<ConfigError>(
        "no job of `tandem run`{} is running for this user on this host (a job of tandem's own; in "
        "a container, ask there)",
        job.empty() ? "" : fmt::format(" with the name or process number '{}'", job));
  }
  return found;
}

int change(const std::string& job, const ControlRequest& request) {
  const std::vector<JobStatus> found = jobs(job);
  if (found.size() > 1) {
    std::string list;
    for (const JobStatus& status : found)
      list += fmt::format("\n  --job {}  {} ({})", status.agent, status.program, status.job);
    raise<ConfigError>("{} jobs run here; say which one:{}", found.size(), list);
  }
  fmt::print("{}\n", launch::ask_change(found.front().agent, request, kLimit));
  return 0;
}

int change_command(const Invocation& invocation, const char* text, const char* name,
                   const char* word, const char* help, ControlRequest::Kind kind) {
  CLI::App app(text, name);
  std::string job;
  ControlRequest request{kind, 0};
  app.add_option(word, request.number, help)->required();
  app.add_option("--job", job, kJobHelp);
  if (!parse_command(app, invocation.words)) return 0;
  return change(job, request);
}

}  // namespace

int show_status(const Invocation& invocation) {
  CLI::App app(
      "Shows the jobs that this user's `tandem run` has on this host: the view, who computes, the "
      "last step that is applied, and how many workers were lost so far.",
      "tandem status");
  std::string job;
  bool as_json = false;
  app.add_option("job", job, "process number of a `tandem run`, or how its --rdzv-id begins");
  app.add_flag("--json", as_json, "a line of JSON for each job");
  if (!parse_command(app, invocation.words)) return 0;
  for (const JobStatus& status : jobs(job)) {
    fmt::print("{}{}", as_json ? launch::to_json(status) : launch::for_people(status),
               as_json ? "\n" : "");
  }
  return 0;
}

int drain_worker(const Invocation& invocation) {
  return change_command(
      invocation,
      "Ends one worker of a running job and does not start it again. The others go on within the "
      "step; weights and losses are those of an undisturbed job. `tandem resize` brings it back.",
      "tandem drain", "worker", "number of the worker on this host, as tandem status shows it",
      ControlRequest::Kind::kDrain);
}

int resize_job(const Invocation& invocation) {
  return change_command(
      invocation,
      "Changes how many workers of a running job this host has, between 1 and --nproc-per-node. "
      "Fewer: the last ones end. More: those that were drained or given up are started again and "
      "join. Weights and losses are those of an undisturbed job.",
      "tandem resize", "workers", "how many workers are to run here",
      ControlRequest::Kind::kResize);
}

}  // namespace tandem::apps
