// Counters of `tandem serve` in Prometheus' text form: GET /metrics.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/serve/http_server.h"

namespace tandem::apps {

// Used on the server's thread only. Its size does not grow with what clients send: paths are
// counted by endpoint, and the codes are the server's own.
class ServeMetrics {
 public:
  // paths: those of inference, in addition to the inference API's.
  ServeMetrics(std::string model, std::string task, std::vector<std::string> paths = {})
      : model_(std::move(model)), task_(std::move(task)), paths_(std::move(paths)) {}

  // An answer, `seconds` after the headers of its request had arrived.
  void count(const HttpRequest& request, int status, double seconds);
  std::string text(const HttpLoad& load) const;

 private:
  std::string_view endpoint_of(const HttpRequest& request) const;

  // Upper bounds of the histogram's buckets in seconds; one more bucket has no bound.
  static constexpr std::array<double, 12> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                     0.5,   1,    2.5,   5,    10,  30};

  std::string model_, task_;
  std::vector<std::string> paths_;
  std::map<std::pair<std::string_view, int>, std::uint64_t> answers_;  // by endpoint and code
  std::array<std::uint64_t, kBounds.size() + 1> buckets_{};            // inference times
  double seconds_ = 0;
};

}  // namespace tandem::apps
