#include "apps/monitor/metrics.h"

#include <fmt/format.h>

#include <csignal>

#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

std::string sample(std::string_view type, std::string_view name, std::string_view help,
                   double value) {
  return fmt::format("# HELP tandem_{1} {2}\n# TYPE tandem_{1} {0}\ntandem_{1} {3}\n", type, name,
                     help, value);
}

HttpResponse text_response(int status, std::string text,
                           std::string type = "text/plain; charset=utf-8") {
  HttpResponse response;
  response.status = status;
  response.content_type = std::move(type);
  response.body = std::move(text);
  return response;
}

HttpResponse answer(const Metrics& metrics, const HttpRequest& request) {
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = text_response(405, "only GET\n");
    response.allow = "GET, HEAD";
    return response;
  }
  if (request.path == "/metrics")
    return text_response(200, metrics.text(), "text/plain; version=0.0.4; charset=utf-8");
  if (request.path == "/healthz")
    return metrics.alive() ? text_response(200, "ok\n") : text_response(503, "stuck\n");
  if (request.path == "/readyz")
    return metrics.ready() ? text_response(200, "ok\n") : text_response(503, "not ready\n");
  return text_response(404, "there are /metrics, /healthz and /readyz\n");
}

HttpServerOptions server_options(std::uint16_t port, bool with_ipv6) {
  HttpServerOptions options;
  // Prometheus and the kubelet ask from outside.
  options.address = with_ipv6 ? "::" : "0.0.0.0";
  options.both_families = with_ipv6;
  options.port = port;
  options.max_body_bytes = 1024;
  options.tick = std::chrono::milliseconds(200);
  return options;
}

HttpHandlers handlers(const Metrics& metrics) {
  return {
      .at_once = [&metrics](const HttpRequest& request) -> std::optional<HttpResponse> {
        return answer(metrics, request);
      },
      .compute =
          [](const HttpRequest&, const std::stop_token&) {
            return text_response(500, "");  // everything is answered at once
          },
      .error = [](const HttpRequest&, int status,
                  const std::string& message) { return text_response(status, message + "\n"); }};
}

// A machine may have no IPv6.
std::unique_ptr<HttpServer> listen(std::uint16_t port, const HttpHandlers& handlers) {
  try {
    return std::make_unique<HttpServer>(server_options(port, true), handlers);
  } catch (const ConfigError&) {
    return std::make_unique<HttpServer>(server_options(port, false), handlers);
  }
}

// A thread that is started meanwhile inherits the mask: signals are the main thread's.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

std::string gauge(std::string_view name, std::string_view help, double value) {
  return sample("gauge", name, help, value);
}

std::string counter(std::string_view name, std::string_view help, double value) {
  return sample("counter", name, help, value);
}

void TrainingMetrics::train_begin(const trainer::TrainBegin& begin) {
  const std::lock_guard lock(mutex_);
  ready_ = training_ = true;
  last_ = trainer::StepProgress{};
  last_->step = begin.first_step;
  last_->max_steps = begin.plan.total_steps;
  last_step_ = Clock::now();
}

void TrainingMetrics::step_end(const trainer::StepProgress& progress) {
  const std::lock_guard lock(mutex_);
  last_ = progress;
  stepped_ = true;
  last_step_ = Clock::now();
}

void TrainingMetrics::train_end() {
  const std::lock_guard lock(mutex_);
  training_ = false;
}

void TrainingMetrics::evaluation_begin(std::string_view, std::size_t, int) {
  const std::lock_guard lock(mutex_);
  ready_ = true;
}

bool TrainingMetrics::ready() const {
  const std::lock_guard lock(mutex_);
  return ready_;
}

std::string TrainingMetrics::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_locked();
}

std::string TrainingMetrics::progress_locked() const {
  std::string text = gauge("training", "1 while steps are made.", training_ ? 1 : 0);
  if (!last_) return text;
  text += gauge("step", "Optimizer steps done.", static_cast<double>(last_->step)) +
          gauge("max_steps", "Optimizer steps of the whole job.",
                static_cast<double>(last_->max_steps));
  if (!stepped_) return text;
  return text + gauge("epoch", "Epochs done.", last_->epoch) +
         gauge("loss", "Loss of the last step on this rank.", last_->loss) +
         gauge("learning_rate", "Learning rate of the last step.", last_->learning_rate) +
         gauge("tokens_per_second", "Tokens of all ranks a second, without padding.",
               last_->real_tokens_per_second) +
         gauge("seconds_left", "Estimate of what training still takes.", last_->seconds_left);
}

std::string TrainingMetrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text = gauge("ranks", "Ranks of the job when this process started.", ranks_) +
                     counter("restarts_total", "Starts of the job before this one.",
                             static_cast<double>(restarts_)) +
                     progress_locked();
  if (!stepped_) return text;
  const std::chrono::duration<double> age = Clock::now() - last_step_;
  return text + gauge("seconds_since_step", "Time since the last step ended.", age.count());
}

MetricsServer::MetricsServer(const Metrics& metrics, std::uint16_t port)
    : server_(listen(port, handlers(metrics))) {
  const AllSignalsBlocked blocked;
  thread_ = std::thread([this] { server_->run(stop_); });
}

MetricsServer::~MetricsServer() {
  stop_ = true;
  thread_.join();
}

}  // namespace tandem::apps
