#include "apps/monitor/trainjob_status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

// The interval that the operator asks its clients to keep.
constexpr std::chrono::seconds kInterval{5};
constexpr std::chrono::seconds kTimeout{5};

std::string without_blanks(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

}  // namespace

std::optional<StatusServer> status_server(const Environment& environment) {
  const auto url = environment.get("KUBEFLOW_TRAINER_SERVER_URL");
  if (!url || environment.get_flag("DISABLE_KUBEFLOW_INTEGRATION")) return std::nullopt;
  StatusServer server{*url, environment.get("KUBEFLOW_TRAINER_SERVER_TOKEN").value_or(""), {}};
  server.network.connect_timeout = kTimeout;
  server.network.stall_timeout = kTimeout;
  server.network.ca_bundle = environment.get("KUBEFLOW_TRAINER_SERVER_CA_CERT").value_or("");
  return server;
}

TrainJobStatus::TrainJobStatus(StatusServer server, std::function<void(const std::string&)> warn)
    : server_(std::move(server)),
      warn_(std::move(warn)),
      thread_([this](const std::stop_token& stop) { post_all(stop); }) {}

TrainJobStatus::~TrainJobStatus() { thread_.request_stop(); }

void TrainJobStatus::train_begin(const trainer::TrainBegin& begin) {
  metrics_ = {{"total_steps", std::to_string(begin.plan.total_steps)}};
  const std::int64_t total = std::max<std::int64_t>(begin.plan.total_steps, 1);
  publish(static_cast<int>(std::min<std::int64_t>(100 * begin.first_step / total, 99)),
          std::nullopt);
}

void TrainJobStatus::step_end(const trainer::StepProgress& progress) {
  report_problem();
  if (Clock::now() < next_ || progress.max_steps <= 0) return;
  metrics_["current_step"] = std::to_string(progress.step);
  metrics_["total_steps"] = std::to_string(progress.max_steps);
  metrics_["current_epoch"] = fmt::format("{:.2f}", progress.epoch);
  // 100 is sent when training has ended.
  const auto percent = static_cast<int>(100 * progress.step / progress.max_steps);
  publish(std::min(percent, 99), progress.seconds_left);
}

void TrainJobStatus::log(const nlohmann::ordered_json& entry) {
  for (const auto& [name, value] : entry.items()) {
    if (value.is_number()) metrics_[name] = value.dump();
  }
}

void TrainJobStatus::train_end() {
  publish(100, 0);
  report_problem();
}

void TrainJobStatus::publish(int percent, std::optional<double> seconds_left) {
  nlohmann::ordered_json status;
  status["lastUpdatedTime"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  status["progressPercentage"] = percent;
  if (seconds_left)
    status["estimatedRemainingSeconds"] = std::max<std::int64_t>(0, std::llround(*seconds_left));
  for (const auto& [name, value] : metrics_)
    status["metrics"].push_back({{"name", name}, {"value", value}});
  const nlohmann::ordered_json body = {{"trainerStatus", status}};
  next_ = Clock::now() + kInterval;
  const std::lock_guard lock(mutex_);
  waiting_ = body.dump();
  changed_.notify_all();
}

void TrainJobStatus::report_problem() {
  if (warned_) return;
  const std::lock_guard lock(mutex_);
  if (problem_.empty()) return;
  warned_ = true;
  warn_(fmt::format(
      "the TrainJob's status server has no progress of this job: {}; training continues",
      problem_));
}

// Until the end; what waits then is posted too.
void TrainJobStatus::post_all(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, stop, [this] { return waiting_.has_value(); });
    if (!waiting_) return;
    const std::string body = *std::exchange(waiting_, std::nullopt);
    lock.unlock();
    const std::string problem = post(body);
    lock.lock();
    if (problem.empty()) continue;
    problem_ = problem;
    if (stop.stop_requested()) return;  // a missing server is waited for only once
  }
}

// Empty: the server has it.
std::string TrainJobStatus::post(const std::string& body) const {
  hub::HttpRequest request;
  request.url = server_.url;
  request.total_timeout = kTimeout;
  request.post = body;
  request.headers = {"Content-Type: application/json"};
  try {
    if (!server_.token_file.empty()) {
      request.headers.push_back(
          fmt::format("Authorization: Bearer {}", without_blanks(read_file(server_.token_file))));
    }
  } catch (const IoError& error) {
    return error.what();
  }
  const hub::HttpAnswer answer = hub::perform(request, server_.network);
  if (!answer.problem.empty()) return answer.problem;
  return answer.headers.status == 200
             ? ""
             : fmt::format("it answers with status {}", answer.headers.status);
}

}  // namespace tandem::apps
