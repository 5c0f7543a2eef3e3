// Progress for the status of a Kubeflow TrainJob (Trainer 2.3), as transformers' KubeflowCallback
// posts it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tandem/core/env.h"
#include "tandem/hub/http.h"
#include "tandem/trainer/observer.h"

namespace tandem::apps {

struct StatusServer {
  std::string url;
  std::string token_file;  // read anew for every post: it is replaced while the job runs
  hub::HttpOptions network;
};

// From KUBEFLOW_TRAINER_SERVER_URL, _CA_CERT and _TOKEN; nothing where they are not set, or where
// DISABLE_KUBEFLOW_INTEGRATION is set.
std::optional<StatusServer> status_server(const Environment& environment);

// Posts from a thread of its own: training never waits for the server, and continues without it.
// Its destructor waits for the last post, a few seconds at most. `warn` is called once, on the
// training thread, when a post fails.
class TrainJobStatus final : public trainer::Observer {
 public:
  TrainJobStatus(StatusServer server, std::function<void(const std::string&)> warn);
  ~TrainJobStatus() override;

  void train_begin(const trainer::TrainBegin& begin) override;
  void step_end(const trainer::StepProgress& progress) override;
  void log(const nlohmann::ordered_json& entry) override;
  void train_end() override;

 private:
  using Clock = std::chrono::steady_clock;

  void publish(int percent, std::optional<double> seconds_left);
  void report_problem();
  void post_all(const std::stop_token& stop);
  std::string post(const std::string& body) const;

  StatusServer server_;
  std::function<void(const std::string&)> warn_;
  std::map<std::string, std::string> metrics_;
  Clock::time_point next_{};
  bool warned_ = false;

  std::mutex mutex_;  // guards the two below
  std::optional<std::string> waiting_;
  std::string problem_;
  std::condition_variable_any changed_;
  std::jthread thread_;  // the last: it uses the others
};

}  // namespace tandem::apps
