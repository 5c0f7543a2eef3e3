#include "tandem/launch/agent.h"

#include <poll.h>

#include <algorithm>
#include <csignal>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/launch/open_job.h"
#include "tandem/launch/signal_inbox.h"
#include "tandem/launch/worker_group.h"

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;
using Clock = Coordinator::Clock;

// Ranks of tandem's own jobs learn of a failure from each other and report why they end: they get
// this long before they are stopped.
constexpr milliseconds kLastWords{3000};
// Time for other ends with the same cause.
constexpr milliseconds kSameMoment{50};
constexpr milliseconds kDrain{1000};
constexpr int kHostLost = 200;

// Thrown out of waits that a signal ends.
struct Stopped {};

class Agent {
 public:
  explicit Agent(AgentParts parts)
      : parts_(std::move(parts)),
        inbox_(with_user_signals(parts_.options.signals)),
        logs_(parts_.options, parts_.options.rdzv_id, parts_.temporary) {}

  int run() {
    if (logs_.wanted()) parts_.log(fmt::format("logs: {}", logs_.folder().string()));
    try {
      open();
      while (!exit_code_) step();
    } catch (const Stopped&) {
      exit_code_ = 128 + stop_signal_;
    }
    relay_.drain(kDrain);
    if (link_) link_->close();
    return *exit_code_;
  }

 private:
  enum class AfterStop { kNothing, kReady, kEnd };

  void open() {
    link_ = open_job(parts_, [this] { stop_on_signal(); });
    link_->ready();
  }

  void stop_on_signal() {
    while (const auto number = inbox_.take()) {
      if (!asks_to_stop(*number)) continue;
      stop_signal_ = *number;
      throw Stopped();
    }
  }

  void step() {
    wait();
    while (const auto number = inbox_.take()) take_signal(*number);
    handle_job();
    if (group_) watch_workers();
  }

  void wait() {
    std::vector<pollfd> waits{{inbox_.descriptor().get(), POLLIN, 0}};
    milliseconds poll_timeout = std::chrono::minutes(1);
    if (link_) {
      link_->add_to(waits);
      poll_timeout = std::min(poll_timeout, link_->poll_timeout());
    }
    const auto now = Clock::now();
    if (group_) {
      group_->add_to(waits);
      poll_timeout =
          std::min(poll_timeout, std::chrono::ceil<milliseconds>(group_->next_due(now) - now));
      if (group_->any_failed() && !reported_) poll_timeout = std::min(poll_timeout, kSameMoment);
    }
    ::poll(waits.data(), waits.size(),
           static_cast<int>(std::max(milliseconds(0), poll_timeout).count()));
  }

  milliseconds shutdown_timeout() const {
    return std::chrono::seconds(parts_.options.shutdown_timeout_s);
  }

  // SIGUSR1 and SIGUSR2 are forwarded to the workers unless --signals-to-handle names them.
  bool asks_to_stop(int number) const {
    const std::vector<int>& stops = parts_.options.signals;
    return is_stop_signal(number) || std::find(stops.begin(), stops.end(), number) != stops.end();
  }

  void take_signal(int number) {
    if (!asks_to_stop(number)) {
      if (group_) group_->signal(number);
      return;
    }
    const StopRequests::Kind request = requests_.add();
    if (request == StopRequests::Kind::kSame) return;
    if (request == StopRequests::Kind::kAgain) {
      parts_.log(fmt::format("{} again: the workers are killed", signal_name(number)));
      if (group_) group_->kill();
      return;
    }
    stop_signal_ = number;
    if (link_) link_->leave(fmt::format("it got {}", signal_name(number)));
    if (!group_ || group_->all_ended()) {
      exit_code_ = 128 + number;
      return;
    }
    parts_.log(
        fmt::format("{}: passed on to {} workers, which have {} s to end (--shutdown-timeout)",
                    signal_name(number), group_->num_running(), parts_.options.shutdown_timeout_s));
    group_->stop(number, shutdown_timeout());
    after_stop_ = AfterStop::kEnd;
    end_code_ = 128 + number;
  }

  void handle_job() {
    if (!link_ || exit_code_) return;
    try {
      for (const Order& order : link_->serve()) {
        if (stop_signal_ == 0) obey(order);
      }
    } catch (const CommError& error) {
      lose_host(error);
    }
  }

  // The job's host may return under its name, as pods do: then this node takes part again.
  void lose_host(const CommError& error) {
    link_.reset();
    const bool again =
        parts_.options.max_restarts > 0 || parts_.options.min_nodes < parts_.options.max_nodes;
    parts_.log(fmt::format("{}{}", error.what(), again ? "; waiting for it to come back" : ""));
    after_stop_ = again ? AfterStop::kReady : AfterStop::kEnd;
    end_code_ = kHostLost;
    stop_workers();
  }

  void obey(const Order& order) {
    switch (order.kind) {
      case Order::Kind::kNote:
        return parts_.log(order.text);
      case Order::Kind::kStart:
        return start(order.assignment);
      case Order::Kind::kStop:
        parts_.log(order.text);
        after_stop_ = AfterStop::kReady;
        return stop_workers();
      case Order::Kind::kEnd:
        end_order_ = order;
        after_stop_ = AfterStop::kEnd;
        end_code_ = order.exit_code;
        return stop_workers();
    }
  }

  void start(const RankAssignment& assignment) {
    reported_ = false;
    after_stop_ = AfterStop::kNothing;
    if (assignment.group_size > 1 || assignment.round > 1) {
      parts_.log(fmt::format(
          "round {}: node {} of {}, ranks {} to {} of {}, bootstrap at {}:{}", assignment.round,
          assignment.group_rank, assignment.group_size, assignment.first_rank,
          assignment.first_rank + static_cast<int>(parts_.placement.workers.size()) - 1,
          assignment.world_size, assignment.master_addr, assignment.master_port));
    }
    group_ = std::make_unique<WorkerGroup>(parts_, assignment, logs_, relay_);
  }

  void stop_workers() {
    if (!group_ || group_->all_ended()) return stopped();
    if (!group_->stopping()) group_->stop(SIGTERM, shutdown_timeout());
  }

  void watch_workers() {
    group_->look();
    if (group_->stopping()) {
      if (group_->all_ended()) stopped();
      return;
    }
    if (reported_) return;
    if (group_->all_succeeded()) {
      reported_ = true;
      if (link_) link_->succeeded();
      handle_job();
    } else if (group_->any_failed()) {
      report_failure();
    }
  }

  // Ends with the same cause belong in one report, and its workers may still have messages to
  // print.
  void report_failure() {
    const auto timeout = parts_.program.own_job ? kLastWords : kSameMoment;
    if (!group_->all_ended() && Clock::now() - group_->failed_since() < timeout) return;
    reported_ = true;
    const Failure& root = root_failure(group_->failures());
    // After exit codes of tandem's own jobs between 1 and 127 a restart would fail again.
    const int code = root.ending.exit_code();
    const bool final = parts_.program.own_job && code < 128;
    keep_error_file(root);
    if (link_) link_->failed(group_->failures(), final);
    stop_workers();
    handle_job();
  }

  void keep_error_file(const Failure& root) {
    error_text_ = group_->error_text(root.local_rank);
    if (error_text_.empty()) error_text_ = error_file_text(root);
  }

  // All workers have ended.
  void stopped() {
    switch (std::exchange(after_stop_, AfterStop::kNothing)) {
      case AfterStop::kNothing:
        return;
      case AfterStop::kReady:
        if (link_) return link_->ready();
        return open();
      case AfterStop::kEnd:
        finish();
    }
  }

  void finish() {
    exit_code_ = end_code_;
    relay_.drain(kDrain);
    if (!end_order_ || end_code_ == 0) return;
    if (!end_order_->text.empty()) parts_.log(end_order_->text);
    if (!end_order_->failures.empty()) {
      for (const std::string& line : failure_report(end_order_->failures)) parts_.log(line);
    }
    if (parts_.error_file.empty()) return;
    if (error_text_.empty()) {
      error_text_ = error_file_text(end_order_->failures.empty()
                                        ? end_order_->text
                                        : describe(root_failure(end_order_->failures)),
                                    "", static_cast<long>(::time(nullptr)));
    }
    write_file(parts_.error_file, error_text_);
  }

  AgentParts parts_;
  SignalInbox inbox_;
  RunLogs logs_;
  OutputRelay relay_;
  std::unique_ptr<JobLink> link_;
  std::unique_ptr<WorkerGroup> group_;
  bool reported_ = false;  // the result of this round's workers was sent
  AfterStop after_stop_ = AfterStop::kNothing;
  StopRequests requests_;
  int stop_signal_ = 0;
  int end_code_ = 0;
  std::optional<Order> end_order_;
  std::string error_text_;
  std::optional<int> exit_code_;
};

}  // namespace

int run_agent(AgentParts parts) { return Agent(std::move(parts)).run(); }

}  // namespace tandem::launch
