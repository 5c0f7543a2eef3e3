#include "tandem/job/elastic.h"

#include <algorithm>
#include <compare>

#include "tandem/comm/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/whole_number.h"
#include "tandem/job/agreed_inputs.h"
#include "tandem/net/job_token.h"

namespace tandem::job {
namespace {

using nlohmann::ordered_json;

std::string to_text(const Progress& progress) {
  ordered_json json;
  json["stage"] = static_cast<int>(progress.stage);
  json["trainer"] = progress.trainer;
  json["results"] = progress.results;
  return json.dump();
}

Progress progress_from(const elastic::TrainingProgress& training_progress) {
  Progress progress;
  if (training_progress.progress.empty()) return progress;
  try {
    const ordered_json json = ordered_json::parse(training_progress.progress);
    progress.stage = static_cast<Stage>(whole_number<int>(json.at("stage")));
    progress.trainer = json.at("trainer").get<std::string>();
    progress.results = json.at("results").get<Results>();
  } catch (const ordered_json::exception& error) {
    raise<CommError>("where the job is cannot be read: {}", error.what());
  }
  progress.records = training_progress.records;
  return progress;
}

// Order of a job's progress. The later, the larger.
struct ProgressOrder {
  int stage = 0;
  std::int64_t step = 0;
  int done_after_step = 0;
  auto operator<=>(const ProgressOrder&) const = default;
};

ProgressOrder order_of(const Progress& progress) {
  ProgressOrder address{.stage = static_cast<int>(progress.stage)};
  if (progress.trainer.empty()) return address;
  try {
    const ordered_json trainer = ordered_json::parse(progress.trainer);
    const ordered_json state = ordered_json::parse(trainer.at("state").get<std::string>());
    const ordered_json resume = ordered_json::parse(trainer.at("resume").get<std::string>());
    address.step = whole_number<std::int64_t>(state.at("global_step")) +
                   static_cast<std::int64_t>(progress.records.size());
    address.done_after_step = 1 + (resume.value("evaluation_due", false) ? 0 : 1) +
                              (trainer.contains("final_metrics") ? 2 : 0);
  } catch (const ordered_json::exception& error) {
    raise<CommError>("where the job is cannot be read: {}", error.what());
  }
  return address;
}

// The later of two. Each belongs to the step whose weights it came with.
elastic::TrainingProgress later(elastic::TrainingProgress a, elastic::TrainingProgress b) {
  return order_of(progress_from(b)) > order_of(progress_from(a)) ? std::move(b) : std::move(a);
}

// The progress that led to the weights of `step`. Only the weights show which of the agent's two
// records is the right one. The record of the newest step may still be in memory as well.
elastic::TrainingProgress training_progress_of(const elastic::Briefing& briefing,
                                               std::uint64_t step) {
  elastic::TrainingProgress found;
  for (const elastic::TrainingProgress* one : {&briefing.training_progress, &briefing.arrived}) {
    const auto counted = static_cast<std::uint64_t>(order_of(progress_from(*one)).step);
    if (counted == step || counted + 1 == step) found = later(std::move(found), *one);
  }
  return found;
}

}  // namespace

std::string to_text(const Decision& decision) {
  return ordered_json{
      {"output_dir", decision.output_dir}, {"resume", decision.resume}, {"shards", decision.shards}}
      .dump();
}

Decision decision_from(const std::string& text) {
  try {
    const ordered_json json = ordered_json::parse(text);
    return {.output_dir = json.at("output_dir").get<std::string>(),
            .resume = json.at("resume").get<std::string>(),
            .shards = whole_number<int>(json.at("shards"))};
  } catch (const ordered_json::exception& error) {
    raise<CommError>("the start of the job cannot be read: {}", error.what());
  }
}

void ViewCallbacks::step_applied(std::uint64_t step, const std::vector<double>& record) {
  if (logs_) channel_.applied(view_, step, record);
}

void ViewCallbacks::progress(std::string text) {
  progress_.trainer = std::move(text);
  send_progress(/*advanced=*/!std::exchange(repeats_, false));
}

void ViewCallbacks::add_result(std::string stage, const ordered_json& metrics) {
  of_this_stage_.emplace_back(std::move(stage), metrics);
}

void ViewCallbacks::stage_is_over(Stage stage) {
  progress_.stage = static_cast<Stage>(static_cast<int>(stage) + 1);
  for (auto& result : std::exchange(of_this_stage_, {}))
    progress_.results.push_back(std::move(result));
  send_progress(/*advanced=*/true);
}

void ViewCallbacks::send_progress(bool advanced) {
  if (logs_) channel_.progress(view_, to_text(progress_), std::exchange(lines_, {}), advanced);
}

elastic::AgentChannel::Ready ready_to_compute(std::uint64_t step, int shards, std::string kernels,
                                              const std::string& lines) {
  const net::ProofCode print = net::prove("", {lines});
  return {.step = step,
          .shards = shards,
          .computes = {.kernels = std::move(kernels),
                       .fingerprint = std::string(print.begin(), print.end()),
                       .inputs = shortened(lines)}};
}

SyncedProgress synchronize_state(elastic::AgentChannel& channel,
                                 const elastic::Assignment& assignment,
                                 const dist::ModelState& model, dist::GradientEngine& gradients,
                                 comm::Communicator& communicator, dist::LearnedState* learner) {
  std::string own;
  if (assignment.briefing.keeps)
    own = elastic::to_text(training_progress_of(assignment.briefing, model.step()));
  const auto arrives = [&](const std::string& arrived) {
    channel.arrives(assignment.view, arrived);
    own = arrived;
  };
  const dist::SyncResult synced = gradients.synchronize_state(
      {.training_progress = own, .arrives = arrives, .learner = learner});
  elastic::TrainingProgress latest;
  for (const std::string& text : comm::all_gather_texts(communicator, own))
    if (!text.empty()) latest = later(std::move(latest), elastic::training_progress_from(text));
  return {progress_from(latest), synced.moved};
}

}  // namespace tandem::job
