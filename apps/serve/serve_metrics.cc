#include "apps/serve/serve_metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::apps {
namespace {

constexpr std::string_view kInference = "inference";

// The value of a label: backslash, quote and line break are written with a backslash.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

std::string heading(std::string_view type, std::string_view name, std::string_view help) {
  return fmt::format("# HELP tandem_serve_{1} {2}\n# TYPE tandem_serve_{1} {0}\n", type, name,
                     help);
}

std::string gauge(std::string_view name, std::string_view help, std::size_t value) {
  return heading("gauge", name, help) + fmt::format("tandem_serve_{} {}\n", name, value);
}

}  // namespace

std::string_view ServeMetrics::endpoint_of(const HttpRequest& request) const {
  const std::string& path = request.path;
  const bool inference = path == "/" || path.starts_with("/models/") ||
                         std::find(paths_.begin(), paths_.end(), path) != paths_.end();
  if (request.method == "POST" && inference) return kInference;
  if (path == "/" || path == "/page.css" || path == "/page.js" || path == "/chat.js") return "page";
  for (const std::string_view known : {"/health", "/info", "/metrics"}) {
    if (path == known) return known;
  }
  return "other";
}

void ServeMetrics::count(const HttpRequest& request, int status, double seconds) {
  const std::string_view endpoint = endpoint_of(request);
  ++answers_[{endpoint, status}];
  if (endpoint != kInference) return;
  const auto* bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++buckets_[static_cast<std::size_t>(bound - kBounds.begin())];
  seconds_ += seconds;
}

std::string ServeMetrics::text(const HttpLoad& load) const {
  std::string text = heading("gauge", "model_info", "The model that is served; always 1.") +
                     fmt::format("tandem_serve_model_info{{model=\"{}\",task=\"{}\"}} 1\n",
                                 escaped(model_), escaped(task_)) +
                     heading("counter", "requests_total", "Answers by endpoint and status code.");
  for (const auto& [key, count] : answers_) {
    text += fmt::format("tandem_serve_requests_total{{endpoint=\"{}\",code=\"{}\"}} {}\n",
                        key.first, key.second, count);
  }
  text += heading("histogram", "request_seconds",
                  "Time of inference requests from their headers to their answer.");
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    sum += buckets_[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    text += fmt::format("tandem_serve_request_seconds_bucket{{le=\"{}\"}} {}\n", bound, sum);
  }
  text +=
      fmt::format("tandem_serve_request_seconds_sum {}\ntandem_serve_request_seconds_count {}\n",
                  seconds_, sum);
  return text +
         gauge("queue_length", "Inference requests that wait for their turn.", load.waiting) +
         gauge("running_requests", "Inference requests that are computed.", load.running) +
         gauge("connections", "Open connections.", load.connections);
}

}  // namespace tandem::apps
