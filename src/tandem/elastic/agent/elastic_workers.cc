#include "tandem/elastic/agent/elastic_workers.h"

#include <fmt/format.h>

#include <ctime>

#include "tandem/launch/run/proxies.h"
#include "tandem/launch/run/worker_environment.h"
#include "tandem/net/socket.h"

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDrain{1000};
constexpr milliseconds kLines{100};

}  // namespace

ElasticWorkers::ElasticWorkers(const launch::AgentParts& parts, ElasticAgent& node)
    : parts_(parts),
      elastic_agent_(node),
      logs_(parts.options, parts.options.rdzv_id, parts.temporary),
      slots_(parts.placement.workers.size()) {}

void ElasticWorkers::start_all() {
  if (logs_.wanted()) parts_.log(fmt::format("logs: {}", logs_.folder().string()));
  logs_.begin_attempt(0);
  for (int worker = 0; worker < size(); ++worker) start(worker);
}

void ElasticWorkers::start_due() {
  for (int worker = 0; worker < size(); ++worker) {
    if (slots_[static_cast<std::size_t>(worker)].start_at > WorkerSlot::Clock::now()) continue;
    logs_.begin_attempt(restarts_);  // output of the previous attempt stays
    start(worker);
  }
}

void ElasticWorkers::start_again(int worker) {
  slots_[static_cast<std::size_t>(worker)].start_again();
  ++restarts_;
}

launch::Console ElasticWorkers::console_of(int worker) const {
  return parts_.proxies ? parts_.proxies->console(worker) : parts_.console;
}

void ElasticWorkers::start(int worker) {
  WorkerSlot& slot = slots_[static_cast<std::size_t>(worker)];
  slot.start_at = WorkerSlot::Clock::time_point::max();
  slot.stuck = false;
  slot.idle_time = {};
  slot.error_file = logs_.error_file(worker);
  const launch::Console console = console_of(worker);
  launch::RunLogs::Ends ends = logs_.open(worker, worker, console, relay_);
  ElasticAgent::Ticket ticket = elastic_agent_.open_channel(worker);
  launch::WorkerStart start;
  start.command = parts_.command;
  start.environment =
      launch::worker_environment(parts_, restarts_, worker, slot.error_file.string());
  start.environment["TANDEM_AGENT"] = std::move(ticket.variable);
  start.out = ends.out ? ends.out.get() : console.out;
  if (lines_.backlog() > 0) stale_.push_back(std::move(slot.out));  // may be written to
  slot.out = std::move(ends.out);
  start.err = ends.err ? ends.err.get() : console.err;
  start.cpus = parts_.placement.workers[static_cast<std::size_t>(worker)].cpus;
  start.inherited = std::move(ticket.inherited);
  slot.process.emplace(start);
  elastic_agent_.channel_taken(worker);
}

std::vector<launch::Failure> ElasticWorkers::take_ended() {
  std::vector<launch::Failure> ended;
  for (int worker = 0; worker < size(); ++worker) {
    WorkerSlot& slot = slots_[static_cast<std::size_t>(worker)];
    if (!slot.process) continue;
    const std::optional<launch::Ending> ending = slot.process->poll();
    if (!ending) continue;
    ended.push_back(describe_end(worker, *ending));
    slot.process.reset();
  }
  return ended;
}

launch::Failure ElasticWorkers::describe_end(int worker, const launch::Ending& ending) {
  const WorkerSlot& slot = slots_[static_cast<std::size_t>(worker)];
  launch::Failure failure;
  failure.rank = elastic_agent_.rank(worker) < 0 ? worker : elastic_agent_.rank(worker);
  failure.local_rank = worker;
  failure.pid = slot.process->pid();
  failure.host = net::host_name();
  failure.ending = ending;
  failure.time = static_cast<double>(std::time(nullptr));
  if (const auto file = launch::read_error_file(slot.error_file)) failure.message = file->message;
  failure.victim = launch::is_victim(ending);
  failure.out_of_memory = memory_kills_.explain(ending);
  return failure;
}

void ElasticWorkers::print(int worker, const std::string& lines) {
  const auto& out = slots_[static_cast<std::size_t>(worker)].out;
  lines_.write(out ? out.get() : console_of(worker).out, lines);
  lines_.drain(kLines);
}

void ElasticWorkers::finish_output() {
  lines_.drain(kDrain);
  for (WorkerSlot& slot : slots_) slot.out = {};
  relay_.drain(kDrain);
}

}  // namespace tandem::elastic
