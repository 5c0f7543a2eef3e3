// A running job at one port, for Prometheus and for the probes of Kubernetes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "apps/serve/http_server.h"
#include "tandem/trainer/observer.h"

namespace tandem::apps {

// Metrics of a job that a port publishes. Thread-safe.
class Metrics {
 public:
  virtual ~Metrics() = default;
  virtual std::string text() const = 0;  // in Prometheus' text form
  virtual bool ready() const = 0;
  virtual bool alive() const { return true; }
};

// A value that goes up and down; one that only grows. The name gets "tandem_" in front.
std::string gauge(std::string_view name, std::string_view help, double value);
std::string counter(std::string_view name, std::string_view help, double value);

// Metrics of a training rank. Thread-safe.
class TrainingMetrics final : public trainer::Observer, public Metrics {
 public:
  // `restarts`: how often the job was started again before this process.
  TrainingMetrics(int ranks, long restarts) : ranks_(ranks), restarts_(restarts) {}

  void train_begin(const trainer::TrainBegin& begin) override;
  void step_end(const trainer::StepProgress& progress) override;
  void train_end() override;
  void evaluation_begin(std::string_view, std::size_t, int) override;

  std::string text() const override;
  // Without what an agent knows better: the ranks, and the time since a step.
  std::string progress() const;
  // It has model and data, and computes.
  bool ready() const override;

 private:
  using Clock = std::chrono::steady_clock;
  std::string progress_locked() const;

  int ranks_;
  long restarts_;
  mutable std::mutex mutex_;
  bool ready_ = false;
  bool training_ = false;
  bool stepped_ = false;  // last_ is of a step, not only of the start
  std::optional<trainer::StepProgress> last_;
  Clock::time_point last_step_{};
};

// Answers /metrics, /healthz and /readyz (200, or 503 for what is not alive or ready) until it
// goes. Its thread takes no signals. Throws ConfigError when the port is taken.
class MetricsServer {
 public:
  // 0: any free port. `metrics` must outlive it.
  MetricsServer(const Metrics& metrics, std::uint16_t port);
  ~MetricsServer();
  std::uint16_t port() const { return server_->port(); }

 private:
  std::unique_ptr<HttpServer> server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace tandem::apps
