#include "tandem/launch/worker_group.h"

#include <algorithm>
#include <csignal>

#include "tandem/core/error.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::launch {
namespace {

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Variables of an agent above this one are not for its workers.
void forget_outer_launchers(std::map<std::string, std::string, std::less<>>& environment) {
  std::erase_if(environment, [](const auto& entry) {
    return entry.first.starts_with("PMI_") || entry.first.starts_with("OMPI_COMM_WORLD_");
  });
}

}  // namespace

std::map<std::string, std::string, std::less<>> worker_environment(const AgentParts& parts,
                                                                   const RankAssignment& assignment,
                                                                   int local_rank,
                                                                   const std::string& error_file) {
  auto environment = parts.inherited;
  forget_outer_launchers(environment);
  const RunOptions& options = parts.options;
  const auto workers = parts.placement.workers.size();
  const auto set = [&](const char* name, std::string value) {
    environment[name] = std::move(value);
  };
  set("RANK", std::to_string(assignment.first_rank + local_rank));
  set("LOCAL_RANK", std::to_string(options.virtual_local_rank ? 0 : local_rank));
  set("GROUP_RANK", std::to_string(assignment.group_rank));
  set("ROLE_RANK", std::to_string(assignment.first_role_rank + local_rank));
  set("ROLE_NAME", options.role);
  set("LOCAL_WORLD_SIZE", std::to_string(workers));
  set("WORLD_SIZE", std::to_string(assignment.world_size));
  set("GROUP_WORLD_SIZE", std::to_string(assignment.group_size));
  set("ROLE_WORLD_SIZE", std::to_string(assignment.role_world_size));
  set("MASTER_ADDR", assignment.master_addr);
  set("MASTER_PORT", std::to_string(assignment.master_port));
  set("TORCHELASTIC_RESTART_COUNT", std::to_string(assignment.restart_count));
  set("TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts));
  set("TORCHELASTIC_RUN_ID", options.rdzv_id);
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  set("TORCHELASTIC_SIGNALS_TO_HANDLE", options.signal_names);
  set("TORCHELASTIC_ERROR_FILE", error_file);
  environment.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (!parts.job_token.empty()) set("TANDEM_JOB_TOKEN", parts.job_token);
  const WorkerPlacement& own = parts.placement.workers[static_cast<std::size_t>(local_rank)];
  if (own.threads) set("OMP_NUM_THREADS", std::to_string(*own.threads));
  return environment;
}

WorkerGroup::WorkerGroup(const AgentParts& parts, const RankAssignment& assignment, RunLogs& logs,
                         OutputRelay& relay)
    : parts_(parts), assignment_(assignment), logs_(logs) {
  logs.begin_attempt(assignment.restart_count);
  const auto& workers = parts.placement.workers;
  for (int local = 0; local < static_cast<int>(workers.size()); ++local) {
    const RunLogs::Ends ends =
        logs.open(assignment.first_rank + local, local, parts.console, relay);
    WorkerStart start;
    start.command = command_of(parts.program, local);
    start.environment =
        worker_environment(parts, assignment, local, logs.error_file(local).string());
    start.out = ends.out.get();
    start.err = ends.err.get();
    start.cpus = workers[static_cast<std::size_t>(local)].cpus;
    slots_.push_back({Worker(start), local});
  }
}

void WorkerGroup::add_to(std::vector<pollfd>& waits) const {
  for (const Slot& slot : slots_) {
    if (!slot.seen_ended) waits.push_back({slot.worker.end_signal().get(), POLLIN, 0});
  }
}

void WorkerGroup::note_failure(const Slot& slot, const Ending& ending) {
  Failure failure;
  failure.rank = assignment_.first_rank + slot.local_rank;
  failure.local_rank = slot.local_rank;
  failure.pid = slot.worker.pid();
  failure.host = rendezvous::host_name();
  failure.ending = ending;
  failure.time = now_in_seconds();
  if (const auto file = read_error_file(logs_.error_file(slot.local_rank)))
    failure.message = file->message;
  failure.victim = is_victim(ending, failure.message, parts_.program.own_job);
  failure.out_of_memory = memory_kills_.explain(ending);
  if (failures_.empty()) failed_since_ = Clock::now();
  failures_.push_back(std::move(failure));
}

void WorkerGroup::look() {
  for (Slot& slot : slots_) {
    if (slot.seen_ended) continue;
    const auto& ending = slot.worker.poll();
    if (!ending) continue;
    slot.seen_ended = true;
    if (!ending->ok() && !stopping_) note_failure(slot, *ending);
  }
  if (stopping_ && Clock::now() >= kill_at_) kill();
}

bool WorkerGroup::all_ended() const { return num_running() == 0; }

bool WorkerGroup::all_succeeded() const { return all_ended() && failures_.empty() && !stopping_; }

std::size_t WorkerGroup::num_running() const {
  return static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(),
                                                [](const Slot& slot) { return !slot.seen_ended; }));
}

std::string WorkerGroup::error_text(int local_rank) const {
  const auto file = read_error_file(logs_.error_file(local_rank));
  return file ? file->text : "";
}

void WorkerGroup::stop(int signal, std::chrono::milliseconds limit) {
  stopping_ = true;
  kill_at_ = Clock::now() + limit;
  for (Slot& slot : slots_) slot.worker.signal(signal);
}

void WorkerGroup::kill() { signal(SIGKILL); }

void WorkerGroup::signal(int number) {
  for (Slot& slot : slots_) slot.worker.signal(number);
}

WorkerGroup::Clock::time_point WorkerGroup::next_due(Clock::time_point now) const {
  if (!stopping_ || all_ended()) return now + std::chrono::hours(1);
  return std::max(kill_at_, now + std::chrono::milliseconds(20));
}

}  // namespace tandem::launch
