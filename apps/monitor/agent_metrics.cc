#include "apps/monitor/agent_metrics.h"

#include <fmt/format.h>

#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

// Looking up a name may hold up an agent for half a minute.
constexpr std::chrono::seconds kMostSilence{60};
constexpr std::chrono::seconds kLogEvery{1};

}  // namespace

void AgentMetrics::publish(const launch::JobStatus& status, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  published_ = now;
}

bool AgentMetrics::ready() const {
  const std::lock_guard lock(mutex_);
  return !status_.ending;
}

bool AgentMetrics::alive_at(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return now - published_ <= kMostSilence;
}

std::string AgentMetrics::text_at(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  std::string text =
      gauge("view", "Number of the view, which changes when nodes or workers come and go.",
            static_cast<double>(status_.view)) +
      gauge("members", "Nodes that take part in the view, one agent each.", status_.nodes) +
      gauge("ranks", "Ranks of the view, on all nodes.", status_.ranks) +
      gauge("workers", "Workers of this node that compute.", status_.num_computing()) +
      counter("losses_total", "Workers of this node that died.", status_.losses) +
      counter("restarts_total", "Workers that were started again on this node.", status_.restarts) +
      counter("lost_seconds_total",
              "Time from the last step before a loss of workers or nodes to the first one after "
              "it, less what a step usually takes.",
              status_.seconds_lost);
  if (status_.seconds_since_step) {
    const std::chrono::duration<double> age = now - published_;
    text += gauge("seconds_since_step", "Time since the last step ended.",
                  *status_.seconds_since_step + age.count());
  }
  return text + status_.measured;
}

void WorkerMetrics::train_begin(const trainer::TrainBegin& begin) {
  metrics_.train_begin(begin);
  publish();
}

void WorkerMetrics::step_end(const trainer::StepProgress& progress) {
  metrics_.step_end(progress);
  const bool last = progress.step == progress.max_steps;
  if (last || Clock::now() - published_at_ >= kLogEvery) publish();
}

void WorkerMetrics::train_end() {
  metrics_.train_end();
  publish();
}

void WorkerMetrics::publish() {
  published_at_ = Clock::now();
  channel_.measured(metrics_.progress());
}

std::unique_ptr<MetricsServer> agent_server(const AgentMetrics& metrics,
                                            const Environment& environment,
                                            const launch::Log& log_line) {
  const auto port = environment.get_int("TANDEM_METRICS_PORT", 1, 65535);
  if (!port) return nullptr;
  try {
    return std::make_unique<MetricsServer>(metrics, static_cast<std::uint16_t>(*port));
  } catch (const ConfigError& error) {
    if (environment.get("KUBERNETES_SERVICE_HOST")) {
      raise<CommError>(
          "TANDEM_METRICS_PORT={}: {}; the probes of this pod could not be answered. With "
          "hostNetwork each pod of a node needs a port of its own, in TANDEM_METRICS_PORT and the "
          "container's ports",
          *port, error.what());
    }
    log_line(fmt::format("warning: TANDEM_METRICS_PORT={}: {}; the job continues without", *port,
                         error.what()));
    return nullptr;
  }
}

int status_interval(const Environment& environment) {
  constexpr long kDay = 86400;
  return static_cast<int>(environment.get_int("TANDEM_STATUS_INTERVAL", 0, kDay).value_or(60));
}

}  // namespace tandem::apps
