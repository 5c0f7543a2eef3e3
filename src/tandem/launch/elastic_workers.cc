#include "tandem/launch/elastic_workers.h"

#include <fmt/format.h>

#include <ctime>

#include "tandem/launch/coordinator.h"
#include "tandem/launch/stand_ins.h"
#include "tandem/launch/worker_group.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDrain{1000};
constexpr milliseconds kLines{100};

Place place_of(const AgentParts& parts, int restarts) {
  Place place;
  place.restart_count = restarts;
  place.group_size = parts.options.max_nodes;
  place.world_size = place.role_world_size =
      static_cast<int>(parts.placement.workers.size()) * place.group_size;
  place.master_addr = "127.0.0.1";  // for programs that read it: the ranks use another address
  place.master_port = 29500;
  return place;
}

}  // namespace

ElasticWorkers::ElasticWorkers(const AgentParts& parts, elastic::Node& node)
    : parts_(parts),
      node_(node),
      logs_(parts.options, parts.options.rdzv_id, parts.temporary),
      members_(parts.placement.workers.size()) {}

void ElasticWorkers::start_all() {
  if (logs_.wanted()) parts_.log(fmt::format("logs: {}", logs_.folder().string()));
  logs_.begin_attempt(0);
  for (int worker = 0; worker < size(); ++worker) start(worker);
}

void ElasticWorkers::start_due() {
  for (int worker = 0; worker < size(); ++worker) {
    if (members_[static_cast<std::size_t>(worker)].start_at > ElasticMember::Clock::now()) continue;
    logs_.begin_attempt(restarts_);  // output of the previous attempt stays
    start(worker);
  }
}

void ElasticWorkers::start_again(int worker) {
  members_[static_cast<std::size_t>(worker)].start_again();
  ++restarts_;
}

Console ElasticWorkers::console_of(int worker) const {
  return parts_.stand_ins ? parts_.stand_ins->console(worker) : parts_.console;
}

void ElasticWorkers::start(int worker) {
  ElasticMember& member = members_[static_cast<std::size_t>(worker)];
  member.start_at = ElasticMember::Clock::time_point::max();
  member.stuck = false;
  member.stillness = {};
  member.error_file = logs_.error_file(worker);
  const Console console = console_of(worker);
  RunLogs::Ends ends = logs_.open(worker, worker, console, relay_);
  elastic::Node::Ticket ticket = node_.open_seat(worker);
  WorkerStart start;
  start.command = command_of(parts_.program, worker);
  start.environment =
      worker_environment(parts_, place_of(parts_, restarts_), worker, member.error_file.string());
  start.environment["TANDEM_AGENT"] = std::move(ticket.variable);
  start.out = ends.out ? ends.out.get() : console.out;
  if (lines_.backlog() > 0) stale_.push_back(std::move(member.out));  // may be written to
  member.out = std::move(ends.out);
  start.err = ends.err ? ends.err.get() : console.err;
  start.cpus = parts_.placement.workers[static_cast<std::size_t>(worker)].cpus;
  start.inherited = std::move(ticket.inherited);
  member.process.emplace(start);
  node_.seat_taken(worker);
}

std::vector<Failure> ElasticWorkers::take_ended() {
  std::vector<Failure> ended;
  for (int worker = 0; worker < size(); ++worker) {
    ElasticMember& member = members_[static_cast<std::size_t>(worker)];
    if (!member.process) continue;
    const std::optional<Ending> ending = member.process->poll();
    if (!ending) continue;
    ended.push_back(describe_end(worker, *ending));
    member.process.reset();
  }
  return ended;
}

Failure ElasticWorkers::describe_end(int worker, const Ending& ending) {
  const ElasticMember& member = members_[static_cast<std::size_t>(worker)];
  Failure failure;
  failure.rank = node_.rank(worker) < 0 ? worker : node_.rank(worker);
  failure.local_rank = worker;
  failure.pid = member.process->pid();
  failure.host = rendezvous::host_name();
  failure.ending = ending;
  failure.time = static_cast<double>(std::time(nullptr));
  if (const auto file = read_error_file(member.error_file)) failure.message = file->message;
  failure.victim = is_victim(ending, failure.message, /*own_job=*/true);
  failure.out_of_memory = memory_kills_.explain(ending);
  return failure;
}

void ElasticWorkers::print(int worker, const std::string& lines) {
  const auto& out = members_[static_cast<std::size_t>(worker)].out;
  lines_.write(out ? out.get() : console_of(worker).out, lines);
  lines_.drain(kLines);
}

void ElasticWorkers::finish_output() {
  lines_.drain(kDrain);
  for (ElasticMember& member : members_) member.out = {};
  relay_.drain(kDrain);
}

}  // namespace tandem::launch
