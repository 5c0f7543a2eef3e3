#include "tandem/elastic/agent/elastic_host.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <span>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/volume.h"
#include "tandem/elastic/agent/elastic_agent.h"
#include "tandem/elastic/agent/elastic_endpoint.h"
#include "tandem/elastic/agent/elastic_workers.h"
#include "tandem/elastic/agent/host_end.h"
#include "tandem/elastic/agent/job_control.h"
#include "tandem/elastic/agent/progress_watchdog.h"
#include "tandem/elastic/agent/worker_slot.h"
#include "tandem/launch/process/signal_inbox.h"
#include "tandem/launch/run/endpoint_plan.h"
#include "tandem/launch/run/proxies.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/socket.h"

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kGoodbye{1000};
constexpr milliseconds kPublishEvery{200};
constexpr int kMostFalseStarts = 5;  // ends of a worker before it has helped to a step
// Deaths of a worker at one step after which the job gives up (reason: docs/elastic_reference.md).
constexpr int kMostDeathsAtOneStep = 3;

// Thrown out of waits that a signal ends.
struct StoppedBySignal {
  int number = 0;
};

class ElasticHost {
 public:
  ElasticHost(launch::AgentParts parts, std::shared_ptr<ExternalLock> lock)
      : parts_(std::move(parts)),
        lock_(std::move(lock)),
        inbox_(launch::with_user_signals(parts_.options.signals)),
        several_(parts_.options.max_nodes > 1),
        elastic_agent_(
            {.workers = num_workers(),
             .shards = parts_.shards > 0 ? parts_.shards : num_workers() * parts_.options.max_nodes,
             .log = parts_.log,
             .print = [this](int worker,
                             const std::string& lines) { workers_.print(worker, lines); },
             .endpoint = find_endpoint()}) {}

  int run() {
    if (several_) parts_.inherited["TANDEM_NODE_ID"] = elastic_agent_.key();
    if (!control_.failure().empty()) parts_.log(control_.failure());
    workers_.start_all();
    while (end_.state() != HostEnd::State::kEnded) step();
    workers_.finish_output();
    send_goodbye();
    return end_.code();
  }

 private:
  int num_workers() const { return static_cast<int>(parts_.placement.workers.size()); }

  std::optional<ElasticEndpoint> find_endpoint() {
    if (!several_) return std::nullopt;
    return find_elastic_endpoint(parts_, lock_, [this] {
      while (const auto number = inbox_.take()) {
        if (asks_to_stop(*number)) throw StoppedBySignal{*number};
      }
      if (publication_due()) parts_.publish({});
    });
  }

  // The last message should reach the others: the job is over.
  void send_goodbye() {
    const auto limit = Clock::now() + kGoodbye;
    while (several_ && !elastic_agent_.sent_all() && Clock::now() < limit) {
      net::EventLoop loop;
      elastic_agent_.add_to(loop);
      loop.run_once(milliseconds(20));
      elastic_agent_.serve();
    }
  }

  void step() {
    wait();
    while (const auto number = inbox_.take()) take_signal(*number);
    handle_proxies();
    for (const launch::Failure& failure : workers_.take_ended()) ended(failure);
    if (end_.state() == HostEnd::State::kEnded) return;
    if (!end_.is_stopping()) workers_.start_due();
    elastic_agent_.serve();
    for (const int worker : elastic_agent_.take_stuck())
      slots_[static_cast<std::size_t>(worker)].kill_stuck();
    if (!end_.is_stopping()) hangs_.look();
    if (end_.leaves_late(Clock::now())) {
      parts_.log("this node could not leave in time: its workers are killed");
      stop(SIGKILL);
    }
    if (elastic_agent_.end() && !end_.is_stopping()) {
      end_.set_code(end_.code_after(elastic_agent_.end()->code));
      if (!elastic_agent_.end()->message.empty()) parts_.log(elastic_agent_.end()->message);
      stop(SIGTERM);
    }
    // All have ended well without ever computing together: there was no work.
    if (!end_.is_stopping() && num_running(slots_) == 0 && !is_any_start_due(slots_)) end_.end(0);
    if (end_.state() == HostEnd::State::kStopping) finish_stop();
    control_.serve([this](const launch::ControlRequest& request) { return answer(request); });
    if (publication_due()) parts_.publish(status());
    log_progress();
  }

  void wait() {
    net::EventLoop loop;
    loop.read(inbox_.descriptor());
    for (const WorkerSlot& slot : slots_) {
      if (slot.process) loop.read(slot.process->end_signal());
      if (slot.start_is_due()) loop.until(slot.start_at);
    }
    elastic_agent_.add_to(loop);
    control_.add_to(loop);
    hangs_.add_to(loop);
    end_.add_to(loop);
    if (parts_.proxies) parts_.proxies->add_to(loop);
    if (parts_.publish) loop.within(kPublishEvery);
    loop.run_once(std::chrono::minutes(1));
  }

  // Signals that mpirun forwards, and processes that it has ended.
  void handle_proxies() {
    if (!parts_.proxies) return;
    const launch::Proxies::News news = parts_.proxies->serve();
    for (const int number : news.signals) take_signal(number);
    for (const auto& [worker, number] : news.for_one) {
      auto& process = slots_[static_cast<std::size_t>(worker)].process;
      if (process) process->signal(number);
    }
    for (const int worker : news.gone) lose_proxy(worker);
  }

  // A user who ends a process of mpirun wants its rank to end.
  void lose_proxy(int worker) {
    WorkerSlot& slot = slots_[static_cast<std::size_t>(worker)];
    if (!slot.takes_part() || end_.is_stopping() || elastic_agent_.end()) return;
    slot.drain();
    if (num_taking_part(slots_) > 0)
      return parts_.log(fmt::format(
          "the process that mpirun has started for worker {} has ended: the others continue",
          worker));
    end_.set_code(CommError("").exit_code());
    stop(SIGKILL);
  }

  // SIGUSR1 and SIGUSR2 are forwarded to the workers unless --signals-to-handle names them.
  bool asks_to_stop(int number) const {
    const std::vector<int>& stops = parts_.options.signals;
    return launch::is_stop_signal(number) ||
           std::find(stops.begin(), stops.end(), number) != stops.end();
  }

  void take_signal(int number) {
    if (!asks_to_stop(number)) {
      signal_all(slots_, number);
      return;
    }
    const launch::StopRequests::Kind request = end_.add_request();
    if (request == launch::StopRequests::Kind::kSame) return;
    if (request == launch::StopRequests::Kind::kAgain) {
      parts_.log(fmt::format("{} again: the workers are killed", launch::signal_name(number)));
      end_.stop(Clock::now());
      return signal_all(slots_, SIGKILL);
    }
    end_.set_signal(number);
    if (several_) return leave(launch::signal_name(number));
    parts_.log(fmt::format(
        "{}: passed on to {} workers, which have {} s to end (--shutdown-timeout)",
        launch::signal_name(number), num_running(slots_), parts_.options.shutdown_timeout_s));
    // SIGUSR1 and SIGUSR2 do not end tandem's workers, even if they end the agent.
    stop(launch::is_stop_signal(number) ? number : SIGTERM);
  }

  // The others continue without this node.
  void leave(std::string_view why) {
    parts_.log(fmt::format(
        "{}: this node leaves the job after a step; it has {} s to do so (--shutdown-timeout)", why,
        parts_.options.shutdown_timeout_s));
    end_.leave(Clock::now() + std::chrono::seconds(parts_.options.shutdown_timeout_s));
    elastic_agent_.leave();
  }

  void ended(const launch::Failure& failure) {
    const int worker = failure.local_rank;
    const bool has_helped = elastic_agent_.has_helped(worker);
    const bool drained = slots_[static_cast<std::size_t>(worker)].drained;
    elastic_agent_.worker_ended(worker, drained ? "was drained" : failure.ending.text(),
                                !drained && failure.ending.is_fault());
    if (elastic_agent_.is_done(worker) || end_.is_stopping() || failure.ending.ok() || drained)
      return;
    ++losses_;
    if (failure.ending.is_final()) return fail(failure, failure.ending.exit_code());
    if (failure.ending.code == kVolumeGone) return go_for_volume(failure);
    WorkerSlot& slot = slots_[static_cast<std::size_t>(worker)];
    if (elastic_agent_.has_computed(worker) &&
        slot.count_death(elastic_agent_.step()) >= kMostDeathsAtOneStep) {
      parts_.log(fmt::format(
          "{}: {} times at step {}, which no worker could apply. That is not a lost machine, "
          "so the job ends. Give it more memory, or a smaller --per_device_train_batch_size; the "
          "same command resumes from the newest checkpoint",
          slot.what_happened(failure), slot.deaths, slot.death_step + 1));
      return fail(failure, 1);
    }
    slot.false_starts = has_helped ? 0 : slot.false_starts + 1;
    if (const std::string why = why_not_again(slot); !why.empty()) return give_up(failure, why);
    workers_.start_again(worker);
    parts_.log(fmt::format("{}; it is started again", slot.what_happened(failure)));
  }

  std::string why_not_again(const WorkerSlot& slot) const {
    if (hangs_.is_again(slot)) return "workers have hung twice before they were ready";
    if (slot.false_starts >= kMostFalseStarts)
      return fmt::format("it has ended {} times without ever helping to a step", slot.false_starts);
    if (parts_.options.max_restarts_given && workers_.restarts() >= parts_.options.max_restarts)
      return fmt::format("--max-restarts {}", parts_.options.max_restarts);
    return "";
  }

  void give_up(launch::Failure failure, const std::string& why) {
    const WorkerSlot& slot = slots_[static_cast<std::size_t>(failure.local_rank)];
    parts_.log(fmt::format("{}; it is not started again ({})", slot.what_happened(failure), why));
    if (failure.message.empty()) failure.message = why;
    const bool none_here = num_running(slots_) == 0 && !is_any_start_due(slots_);
    // A job of mpirun's on several hosts begins with all of its ranks.
    const bool needed =
        !elastic_agent_.begun() && ((several_ && parts_.known_endpoint) || hangs_.is_again(slot));
    if (none_here || needed) fail(failure, failure.ending.exit_code());
  }

  // ---- requests of users ----
  std::string answer(const launch::ControlRequest& request) {
    if (request.kind == launch::ControlRequest::Kind::kStatus) return to_json(status());
    if (end_.is_stopping() || elastic_agent_.end()) raise<ConfigError>("the job is ending");
    if (request.kind == launch::ControlRequest::Kind::kLeave) return drain_all();
    return request.kind == launch::ControlRequest::Kind::kDrain ? drain(request.number)
                                                                : resize(request.number);
  }

  launch::JobStatus status() const {
    launch::JobStatus status;
    status.job = parts_.options.rdzv_id;
    status.host = net::host_name();
    status.agent = ::getpid();
    status.address = elastic_agent_.address();
    status.program = std::filesystem::path(parts_.options.script).filename().string();
    status.view = elastic_agent_.view_number();
    status.step = elastic_agent_.step();
    status.losses = losses_;
    status.restarts = workers_.restarts();
    status.nodes = elastic_agent_.num_nodes();
    status.ranks = elastic_agent_.num_ranks();
    status.seconds_lost = elastic_agent_.seconds_lost();
    status.seconds_since_step = elastic_agent_.seconds_since_step();
    status.ending = end_.state() != HostEnd::State::kRunning || elastic_agent_.end() != nullptr;
    status.measured = elastic_agent_.measured();
    for (int worker = 0; worker < num_workers(); ++worker) {
      const WorkerSlot& slot = slots_[static_cast<std::size_t>(worker)];
      status.members.push_back(
          {worker, elastic_agent_.rank_now(worker), slot.process ? slot.process->pid() : 0,
           std::string(slot.drained ? "is drained" : elastic_agent_.doing(worker))});
    }
    return status;
  }

  // This host leaves; its agent ends.
  std::string drain_all() {
    const int others = static_cast<int>(elastic_agent_.others().size());
    if (others == 0) {
      raise<ConfigError>("no other host computes; SIGTERM to agent {} ends the job{}", ::getpid(),
                         several_ ? " after a checkpoint" : "");
    }
    end_.set_drained();
    leave("drained");
    const bool fixed = parts_.options.backend == launch::Backend::kStatic;
    const int least = fixed ? parts_.options.max_nodes : parts_.options.min_nodes;
    return fmt::format(
        "{} leaves after a step; {} of {} hosts continue{}", net::host_name(), others, others + 1,
        others < least ? fmt::format(" when there are at least {} again (--nnodes)", least) : "");
  }

  // The others compute its present work again.
  std::string drain(int worker) {
    if (worker < 0 || worker >= num_workers())
      raise<ConfigError>("there is no worker {}; this agent has 0 to {}", worker,
                         num_workers() - 1);
    WorkerSlot& slot = slots_[static_cast<std::size_t>(worker)];
    if (!slot.takes_part()) raise<ConfigError>("worker {} does not take part", worker);
    if (num_taking_part(slots_) == 1)
      raise<ConfigError>("worker {} is the only one{}, send SIGTERM to agent {}", worker,
                         several_ ? " here; for the others to continue without this host"
                                  : "; to end the job after a checkpoint",
                         ::getpid());
    slot.drain();
    parts_.log(fmt::format("worker {} is drained: it ends and is not started again", worker));
    return fmt::format("worker {} is drained; {} of {} workers continue", worker,
                       num_taking_part(slots_), num_workers());
  }

  std::string resize(int workers) {
    if (workers < 1 || workers > num_workers())
      raise<ConfigError>(
          "this host can have 1 to {} workers of the job, not {}: --nproc-per-node is the most",
          num_workers(), workers);
    for (int worker = num_workers() - 1; worker >= 0 && num_taking_part(slots_) > workers;
         --worker) {
      if (slots_[static_cast<std::size_t>(worker)].takes_part()) drain(worker);
    }
    for (WorkerSlot& slot : slots_) {
      if (num_taking_part(slots_) >= workers) break;
      if (slot.takes_part() || slot.process) continue;  // or it is about to end
      slot.drained = false;
      slot.false_starts = 0;
      slot.start_at = Clock::now();
    }
    if (num_taking_part(slots_) < workers)
      raise<ConfigError>("only {} workers could be started: others are about to end; ask again",
                         num_taking_part(slots_));
    parts_.log(fmt::format("resized: {} workers take part here", workers));
    return fmt::format("{} of {} workers take part", workers, num_workers());
  }

  bool publication_due() {
    if (!parts_.publish || Clock::now() - reported_.published_at < kPublishEvery) return false;
    reported_.published_at = Clock::now();
    return true;
  }

  // Regularly, when the job has made progress.
  void log_progress() {
    const std::chrono::seconds interval(parts_.status_interval_s);
    if (interval.count() == 0 || Clock::now() - reported_.logged_at < interval ||
        reported_.logged_step == elastic_agent_.step())
      return;
    reported_.logged_at = Clock::now();
    reported_.logged_step = elastic_agent_.step();
    parts_.log(progress_line(status()));
  }

  // The job ends because of it.
  void fail(const launch::Failure& failure, int code) {
    end_.set_root(failure, code);
    if (several_) elastic_agent_.fail(code, describe(failure));
    stop(SIGTERM);
  }

  // The worker stays away on this host; a restarted pod gets the file mounted again. The others
  // continue.
  void go_for_volume(const launch::Failure& failure) {
    end_.set_root(failure, kVolumeGone);
    stop(several_ ? SIGKILL : SIGTERM);
  }

  void stop(int number) {
    end_.stop(Clock::now() + std::chrono::seconds(parts_.options.shutdown_timeout_s));
    if (!elastic_agent_.end()) signal_all(slots_, number);
  }

  void finish_stop() {
    if (num_running(slots_) > 0) {
      // Workers that are late for the job have no work any more.
      for (int worker = 0; elastic_agent_.end() && worker < num_workers(); ++worker) {
        auto& process = slots_[static_cast<std::size_t>(worker)].process;
        if (process && !elastic_agent_.is_done(worker)) process->signal(SIGKILL);
      }
      if (end_.kills_late(Clock::now())) signal_all(slots_, SIGKILL);
      return;
    }
    end_.end(end_.code());
    if (end_.root()) report(*end_.root());
  }

  void report(const launch::Failure& root) {
    for (const std::string& line : launch::failure_report({root})) parts_.log(line);
    if (parts_.error_file.empty()) return;
    const WorkerSlot& slot = slots_[static_cast<std::size_t>(root.local_rank)];
    const auto file = launch::read_error_file(slot.error_file);
    write_file(parts_.error_file, file ? file->text : launch::error_file_text(root));
  }

  launch::AgentParts parts_;
  const std::shared_ptr<ExternalLock> lock_;
  launch::SignalInbox inbox_;
  // The last report and its time; exists before the node does.
  struct Reported {
    Clock::time_point published_at{};
    Clock::time_point logged_at = Clock::now();
    std::uint64_t logged_step = 0;
  };
  Reported reported_;
  const bool several_;  // hosts
  ElasticAgent elastic_agent_;
  JobControl control_{::getpid(), parts_.job_token, elastic_agent_};
  ElasticWorkers workers_{parts_, elastic_agent_};
  const std::span<WorkerSlot> slots_ = workers_.slots();
  // Half of the others' timeout: they are still there when the worker is restarted.
  ProgressWatchdog hangs_{slots_, elastic_agent_, launch::join_timeout(parts_.options) / 2,
                          parts_.log};
  int losses_ = 0;  // dead workers of this host
  HostEnd end_;
};

}  // namespace

int run_elastic_agent(launch::AgentParts parts, std::shared_ptr<ExternalLock> lock) {
  try {
    return ElasticHost(std::move(parts), std::move(lock)).run();
  } catch (const StoppedBySignal& stopped) {
    return 128 + stopped.number;
  }
}

}  // namespace tandem::elastic
