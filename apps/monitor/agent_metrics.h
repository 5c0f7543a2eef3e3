// The agent of an elastic job at one port: it is there before the workers are, and outlives them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "apps/monitor/metrics.h"
#include "tandem/core/env.h"
#include "tandem/elastic/worker/agent_channel.h"
#include "tandem/launch/control/job_status.h"
#include "tandem/launch/run/agent.h"

namespace tandem::apps {

// Where a job stood last. Thread-safe.
class AgentMetrics final : public Metrics {
 public:
  using Clock = std::chrono::steady_clock;

  // From the agent's loop, several times a second.
  void publish(const launch::JobStatus& status, Clock::time_point now = Clock::now());

  // The agent's own, and behind them what the first worker measured.
  std::string text() const override { return text_at(Clock::now()); }
  std::string text_at(Clock::time_point now) const;
  // From the start until the job ends. It does not wait for training: the pods of a job find each
  // other by names that are given to ready ones only.
  bool ready() const override;
  // publish() was called within the last minute.
  bool alive() const override { return alive_at(Clock::now()); }
  bool alive_at(Clock::time_point now) const;

 private:
  mutable std::mutex mutex_;
  launch::JobStatus status_;
  Clock::time_point published_ = Clock::now();
};

// The agent's port, TANDEM_METRICS_PORT; null without one. One port for all that the agent starts,
// from before it looks for the others. A port that cannot be had is worth a line only, but for a
// pod: its liveness probe would kill it, so it ends with the reason (CommError) and starts again.
std::unique_ptr<MetricsServer> agent_server(const AgentMetrics& metrics,
                                            const Environment& environment,
                                            const launch::Log& log_line);

// TANDEM_STATUS_INTERVAL: seconds between the lines about the state of the job. Throws
// ConfigError.
int status_interval(const Environment& environment);

// A worker's side: what it measures goes to its agent, at most once a second while it trains.
// The channel must outlive it.
class WorkerMetrics final : public trainer::Observer {
 public:
  WorkerMetrics(elastic::AgentChannel& channel, TrainingMetrics& metrics)
      : channel_(channel), metrics_(metrics) {}

  void train_begin(const trainer::TrainBegin& begin) override;
  void step_end(const trainer::StepProgress& progress) override;
  void train_end() override;

 private:
  using Clock = std::chrono::steady_clock;
  void publish();

  elastic::AgentChannel& channel_;
  TrainingMetrics& metrics_;
  Clock::time_point published_at_{};
};

}  // namespace tandem::apps
