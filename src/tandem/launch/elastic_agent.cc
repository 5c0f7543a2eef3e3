#include "tandem/launch/elastic_agent.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <span>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/volume.h"
#include "tandem/elastic/node.h"
#include "tandem/launch/elastic_member.h"
#include "tandem/launch/elastic_place.h"
#include "tandem/launch/elastic_workers.h"
#include "tandem/launch/hang_watch.h"
#include "tandem/launch/job_control.h"
#include "tandem/launch/open_job.h"
#include "tandem/launch/signal_inbox.h"
#include "tandem/launch/stand_ins.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::launch {
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

class ElasticAgent {
 public:
  explicit ElasticAgent(AgentParts parts)
      : parts_(std::move(parts)),
        inbox_(with_user_signals(parts_.options.signals)),
        several_(parts_.options.max_nodes > 1),
        node_(
            {.workers = num_workers(),
             .shards = parts_.shards > 0 ? parts_.shards : num_workers() * parts_.options.max_nodes,
             .log = parts_.log,
             .print = [this](int worker,
                             const std::string& lines) { workers_.print(worker, lines); },
             .place = find_place()}) {}

  int run() {
    if (several_) parts_.inherited["TANDEM_NODE_ID"] = node_.key();
    if (!control_.failure().empty()) parts_.log(control_.failure());
    workers_.start_all();
    while (!exit_code_) step();
    workers_.finish_output();
    say_goodbye();
    return *exit_code_;
  }

 private:
  using Member = ElasticMember;

  int num_workers() const { return static_cast<int>(parts_.placement.workers.size()); }

  std::optional<elastic::NodePlace> find_place() {
    if (!several_) return std::nullopt;
    return find_node_place(parts_, [this] {
      while (const auto number = inbox_.take()) {
        if (asks_to_stop(*number)) throw StoppedBySignal{*number};
      }
      if (publication_due()) parts_.publish({});
    });
  }

  // The last message should reach the others: the job is over.
  void say_goodbye() {
    const auto limit = Clock::now() + kGoodbye;
    while (several_ && !node_.said_all() && Clock::now() < limit) {
      std::vector<pollfd> waits;
      node_.add_to(waits);
      ::poll(waits.data(), waits.size(), 20);
      node_.serve();
    }
  }

  void step() {
    wait();
    while (const auto number = inbox_.take()) take_signal(*number);
    hear_stand_ins();
    for (const Failure& failure : workers_.take_ended()) ended(failure);
    if (exit_code_) return;
    if (!stopping_) workers_.start_due();
    node_.serve();
    for (const int worker : node_.take_stuck())
      members_[static_cast<std::size_t>(worker)].kill_stuck();
    if (!stopping_) hangs_.look();
    if (!stopping_ && Clock::now() >= leave_by_) {
      parts_.log("this node could not leave in time: its workers are killed");
      stop(SIGKILL);
    }
    if (node_.end() && !stopping_) {
      end_code_ = end_code_of(node_.end()->code);
      if (!node_.end()->message.empty()) parts_.log(node_.end()->message);
      stop(SIGTERM);
    }
    // All have ended well without ever computing together: there was no work.
    if (!stopping_ && num_running(members_) == 0 && !is_any_start_due(members_)) exit_code_ = 0;
    if (stopping_) finish_stop();
    control_.serve([this](const ControlRequest& request) { return answer(request); });
    if (publication_due()) parts_.publish(status());
    tell_progress();
  }

  // A node that was asked to leave has left; the number distinguishes this from a signal.
  int end_code_of(int code) const {
    if (code == 0 || stop_signal_ == 0) return drained_ && code == membership::kHasLeft ? 0 : code;
    return 128 + stop_signal_;
  }

  void wait() {
    std::vector<pollfd> waits{{inbox_.descriptor().get(), POLLIN, 0}};
    milliseconds nap = std::min(node_.nap(), control_.nap());
    const auto now = Clock::now();
    for (const Member& member : members_) {
      if (member.process) waits.push_back({member.process->end_signal().get(), POLLIN, 0});
      if (member.start_is_due())
        nap = std::min(nap, std::chrono::ceil<milliseconds>(member.start_at - now));
    }
    nap = std::min(nap, hangs_.nap());
    node_.add_to(waits);
    control_.add_to(waits);
    if (parts_.stand_ins) parts_.stand_ins->add_to(waits);
    if (stopping_) nap = std::min(nap, milliseconds(20));
    if (leave_by_ != Clock::time_point::max()) nap = std::min(nap, milliseconds(200));
    if (parts_.publish) nap = std::min(nap, kPublishEvery);
    ::poll(waits.data(), waits.size(), static_cast<int>(std::max(milliseconds(0), nap).count()));
  }

  // Signals that mpirun forwards, and processes that it has ended.
  void hear_stand_ins() {
    if (!parts_.stand_ins) return;
    const StandIns::News news = parts_.stand_ins->serve();
    for (const int number : news.signals) take_signal(number);
    for (const auto& [worker, number] : news.for_one) {
      auto& process = members_[static_cast<std::size_t>(worker)].process;
      if (process) process->signal(number);
    }
    for (const int worker : news.gone) lose_stand_in(worker);
  }

  // A user who ends a process of mpirun wants its rank to end.
  void lose_stand_in(int worker) {
    Member& member = members_[static_cast<std::size_t>(worker)];
    if (!member.takes_part() || stopping_ || node_.end()) return;
    member.drain();
    if (num_taking_part(members_) > 0)
      return parts_.log(fmt::format(
          "the process that mpirun has started for worker {} is gone: the others go on", worker));
    end_code_ = CommError("").exit_code();
    stop(SIGKILL);
  }

  // SIGUSR1 and SIGUSR2 are forwarded to the workers unless --signals-to-handle names them.
  bool asks_to_stop(int number) const {
    const std::vector<int>& stops = parts_.options.signals;
    return is_stop_signal(number) || std::find(stops.begin(), stops.end(), number) != stops.end();
  }

  void take_signal(int number) {
    if (!asks_to_stop(number)) {
      signal_all(members_, number);
      return;
    }
    const StopRequests::Kind request = requests_.add();
    if (request == StopRequests::Kind::kSame) return;
    if (request == StopRequests::Kind::kAgain) {
      parts_.log(fmt::format("{} again: the workers are killed", signal_name(number)));
      if (!std::exchange(stopping_, true)) kill_at_ = Clock::now();
      return signal_all(members_, SIGKILL);
    }
    stop_signal_ = number;
    end_code_ = 128 + number;
    if (several_) return leave(signal_name(number));
    parts_.log(
        fmt::format("{}: passed on to {} workers, which have {} s to end (--shutdown-timeout)",
                    signal_name(number), num_running(members_), parts_.options.shutdown_timeout_s));
    // SIGUSR1 and SIGUSR2 do not end tandem's workers, even if they end the agent.
    stop(is_stop_signal(number) ? number : SIGTERM);
  }

  // The others continue without this node.
  void leave(std::string_view why) {
    parts_.log(fmt::format(
        "{}: this node leaves the job after a step; it has {} s to do so (--shutdown-timeout)", why,
        parts_.options.shutdown_timeout_s));
    leave_by_ = Clock::now() + std::chrono::seconds(parts_.options.shutdown_timeout_s);
    node_.leave();
  }

  void ended(const Failure& failure) {
    const int worker = failure.local_rank;
    const bool has_helped = node_.has_helped(worker);
    const bool drained = members_[static_cast<std::size_t>(worker)].drained;
    node_.worker_ended(worker, drained ? "was drained" : failure.ending.text(),
                       !drained && failure.ending.is_fault());
    if (node_.is_done(worker) || stopping_ || failure.ending.ok() || drained) return;
    failures_.push_back(failure);
    if (failure.ending.is_final()) return fail(failure, failure.ending.exit_code());
    if (failure.ending.code == kVolumeGone) return go_for_volume(failure);
    Member& member = members_[static_cast<std::size_t>(worker)];
    if (node_.has_computed(worker) && member.count_death(node_.step()) >= kMostDeathsAtOneStep) {
      parts_.log(fmt::format(
          "{}: {} times at step {}, which nobody could apply meanwhile. That is no lost machine, "
          "so the job ends. Give it more memory, or a smaller --per_device_train_batch_size; the "
          "same command resumes from the newest checkpoint",
          member.what_happened(failure), member.deaths, member.death_step + 1));
      return fail(failure, 1);
    }
    member.false_starts = has_helped ? 0 : member.false_starts + 1;
    if (const std::string why = why_not_again(member); !why.empty()) return give_up(failure, why);
    workers_.start_again(worker);
    parts_.log(fmt::format("{}; it is started again", member.what_happened(failure)));
  }

  std::string why_not_again(const Member& member) const {
    if (hangs_.is_again(member)) return "workers have hung twice before they were ready";
    if (member.false_starts >= kMostFalseStarts)
      return fmt::format("it has ended {} times without ever helping to a step",
                         member.false_starts);
    if (parts_.options.max_restarts_given && workers_.restarts() >= parts_.options.max_restarts)
      return fmt::format("--max-restarts {}", parts_.options.max_restarts);
    return "";
  }

  void give_up(Failure failure, const std::string& why) {
    const Member& member = members_[static_cast<std::size_t>(failure.local_rank)];
    parts_.log(fmt::format("{}; it is not started again ({})", member.what_happened(failure), why));
    if (failure.message.empty()) failure.message = why;
    const bool none_here = num_running(members_) == 0 && !is_any_start_due(members_);
    // A job of mpirun's on several hosts begins with all of its ranks.
    const bool needed = !node_.begun() && ((several_ && parts_.meeting) || hangs_.is_again(member));
    if (none_here || needed) fail(failure, failure.ending.exit_code());
  }

  // ---- requests of users ----
  std::string answer(const ControlRequest& request) {
    if (request.kind == ControlRequest::Kind::kStatus) return to_json(status());
    if (stopping_ || node_.end()) raise<ConfigError>("the job is ending");
    if (request.kind == ControlRequest::Kind::kLeave) return drain_all();
    return request.kind == ControlRequest::Kind::kDrain ? drain(request.number)
                                                        : resize(request.number);
  }

  JobStatus status() const {
    JobStatus status;
    status.job = parts_.options.rdzv_id;
    status.host = rendezvous::host_name();
    status.agent = ::getpid();
    status.address = node_.address();
    status.program = std::filesystem::path(parts_.options.script).filename().string();
    status.view = node_.view_number();
    status.step = node_.step();
    status.losses = static_cast<int>(failures_.size());
    status.restarts = workers_.restarts();
    status.nodes = node_.num_nodes();
    status.ranks = node_.num_ranks();
    status.seconds_lost = node_.seconds_lost();
    status.seconds_since_step = node_.seconds_since_step();
    status.ending = stopping_ || node_.end() || leave_by_ != Clock::time_point::max();
    status.measured = node_.measured();
    for (int worker = 0; worker < num_workers(); ++worker) {
      const Member& member = members_[static_cast<std::size_t>(worker)];
      status.members.push_back({worker, node_.rank_now(worker),
                                member.process ? member.process->pid() : 0,
                                std::string(member.drained ? "is drained" : node_.doing(worker))});
    }
    return status;
  }

  // This host leaves; its agent ends.
  std::string drain_all() {
    const int others = static_cast<int>(node_.others().size());
    if (others == 0) {
      raise<ConfigError>("no other host computes; SIGTERM to agent {} ends the job{}", ::getpid(),
                         several_ ? " after a checkpoint" : "");
    }
    drained_ = true;
    leave("drained");
    const bool fixed = parts_.options.backend == Backend::kStatic;
    const int least = fixed ? parts_.options.max_nodes : parts_.options.min_nodes;
    return fmt::format(
        "{} leaves after a step; {} go on{}", rendezvous::host_name(), others,
        others < least ? fmt::format(" when there are at least {} again (--nnodes)", least) : "");
  }

  // The others compute its present work again.
  std::string drain(int worker) {
    if (worker < 0 || worker >= num_workers())
      raise<ConfigError>("there is no worker {}; this agent has 0 to {}", worker,
                         num_workers() - 1);
    Member& member = members_[static_cast<std::size_t>(worker)];
    if (!member.takes_part()) raise<ConfigError>("worker {} does not take part", worker);
    if (num_taking_part(members_) == 1)
      raise<ConfigError>("worker {} is the only one{}, send SIGTERM to agent {}", worker,
                         several_ ? " here; for the others to go on without this host"
                                  : "; to end the job after a checkpoint",
                         ::getpid());
    member.drain();
    parts_.log(fmt::format("worker {} is drained: it ends and is not started again", worker));
    return fmt::format("worker {} is drained; {} go on", worker, num_taking_part(members_));
  }

  std::string resize(int workers) {
    if (workers < 1 || workers > num_workers())
      raise<ConfigError>(
          "this host can have 1 to {} workers of the job, not {}: --nproc-per-node is the most",
          num_workers(), workers);
    for (int worker = num_workers() - 1; worker >= 0 && num_taking_part(members_) > workers;
         --worker) {
      if (members_[static_cast<std::size_t>(worker)].takes_part()) drain(worker);
    }
    for (Member& member : members_) {
      if (num_taking_part(members_) >= workers) break;
      if (member.takes_part() || member.process) continue;  // or it is about to end
      member.drained = false;
      member.false_starts = 0;
      member.start_at = Clock::now();
    }
    if (num_taking_part(members_) < workers)
      raise<ConfigError>("only {} workers could be started: others are about to end; ask again",
                         num_taking_part(members_));
    parts_.log(fmt::format("resized: {} workers take part here", workers));
    return fmt::format("{} of {} workers take part", workers, num_workers());
  }

  bool publication_due() {
    if (!parts_.publish || Clock::now() - published_at_ < kPublishEvery) return false;
    published_at_ = Clock::now();
    return true;
  }

  // Regularly, when the job has made progress.
  void tell_progress() {
    const std::chrono::seconds interval(parts_.status_interval_s);
    if (interval.count() == 0 || Clock::now() - told_at_ < interval || told_step_ == node_.step())
      return;
    told_at_ = Clock::now();
    told_step_ = node_.step();
    parts_.log(progress_line(status()));
  }

  // The job ends because of it.
  void fail(const Failure& failure, int code) {
    root_ = failure;
    end_code_ = code;
    if (several_) node_.fail(end_code_, describe(failure));
    stop(SIGTERM);
  }

  // The worker stays away on this host; a restarted pod gets the file mounted again. The others
  // continue.
  void go_for_volume(const Failure& failure) {
    root_ = failure;
    end_code_ = kVolumeGone;
    stop(several_ ? SIGKILL : SIGTERM);
  }

  void stop(int number) {
    if (!std::exchange(stopping_, true))
      kill_at_ = Clock::now() + std::chrono::seconds(parts_.options.shutdown_timeout_s);
    if (!node_.end()) signal_all(members_, number);
  }

  void finish_stop() {
    if (num_running(members_) > 0) {
      // Workers that are late for the job have no work any more.
      for (int worker = 0; node_.end() && worker < num_workers(); ++worker) {
        auto& process = members_[static_cast<std::size_t>(worker)].process;
        if (process && !node_.is_done(worker)) process->signal(SIGKILL);
      }
      if (Clock::now() >= kill_at_) signal_all(members_, SIGKILL);
      return;
    }
    exit_code_ = end_code_;
    if (root_) report();
  }

  void report() {
    for (const std::string& line : failure_report({*root_})) parts_.log(line);
    if (parts_.error_file.empty()) return;
    const Member& member = members_[static_cast<std::size_t>(root_->local_rank)];
    const auto file = read_error_file(member.error_file);
    write_file(parts_.error_file, file ? file->text : error_file_text(*root_));
  }

  AgentParts parts_;
  SignalInbox inbox_;
  Clock::time_point published_at_{};  // before the node is there, too
  const bool several_;                // hosts
  elastic::Node node_;
  JobControl control_{::getpid(), parts_.job_token, node_};
  ElasticWorkers workers_{parts_, node_};
  const std::span<Member> members_ = workers_.members();
  // Half of the others' timeout: they are still there when the worker is restarted.
  HangWatch hangs_{members_, node_, join_timeout(parts_.options) / 2, parts_.log};
  std::vector<Failure> failures_;
  std::optional<Failure> root_;
  Clock::time_point told_at_ = Clock::now();
  std::uint64_t told_step_ = 0;
  bool stopping_ = false, drained_ = false;
  StopRequests requests_;
  int stop_signal_ = 0, end_code_ = 0;
  Clock::time_point kill_at_, leave_by_ = Clock::time_point::max();
  std::optional<int> exit_code_;
};

}  // namespace

bool is_elastic(const AgentParts& parts) { return parts.program.own_job; }

int run_elastic_agent(AgentParts parts) {
  try {
    return ElasticAgent(std::move(parts)).run();
  } catch (const StoppedBySignal& stopped) {
    return 128 + stopped.number;
  }
}

}  // namespace tandem::launch
