// A running job at one port, for Prometheus and for the probes of Kubernetes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "apps/serve/http_server.h"
#include "tandem/trainer/observer.h"

namespace tandem::apps {

// What is known of a job at a moment, in Prometheus' text form. Thread-safe.
class TrainingMetrics final : public trainer::Observer {
 public:
  // `restarts`: how often the job was started again before this process.
  TrainingMetrics(int ranks, long restarts) : ranks_(ranks), restarts_(restarts) {}

  void train_begin(const trainer::TrainBegin& begin) override;
  void step_end(const trainer::StepProgress& progress) override;
  void train_end() override;
  void evaluation_begin(std::string_view, std::size_t, int) override;

  std::string text() const;
  // It has model and data, and computes.
  bool ready() const;

 private:
  using Clock = std::chrono::steady_clock;

  int ranks_;
  long restarts_;
  mutable std::mutex mutex_;
  bool ready_ = false;
  bool training_ = false;
  bool stepped_ = false;  // last_ is of a step, not only of the start
  std::optional<trainer::StepProgress> last_;
  Clock::time_point last_step_{};
};

// Answers /metrics, /healthz (200 while the process lives) and /readyz (200 once it computes, 503
// before) until it goes. Throws ConfigError when the port is taken.
class MetricsServer {
 public:
  // 0: any free port. `metrics` must outlive it.
  MetricsServer(const TrainingMetrics& metrics, std::uint16_t port);
  ~MetricsServer();
  std::uint16_t port() const { return server_.port(); }

 private:
  HttpServer server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace tandem::apps
