// Evaluation and prediction: the batches of a split dealt to the ranks, the outputs gathered, the
// task's metrics.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/kernels/context.h"
#include "tandem/tasks/ranking/csv_table.h"
#include "tandem/tasks/task.h"
#include "tandem/trainer/observer.h"

namespace tandem::trainer {

struct EvaluationRequest {
  tasks::Split split = tasks::Split::kEval;
  std::string metric_prefix = "eval";  // prefix of the keys of the result
  std::string file_prefix = "eval";    // prefix of the prediction files
  std::filesystem::path directory;     // where rank 0 writes them; empty: nowhere
  std::size_t batch_size = 8;          // per rank
  // Written as <prefix>_model_preparation_time, if there.
  std::optional<double> preparation_seconds = std::nullopt;
  // When the evaluation takes place. The task's tables in directory/eval get a row, if there.
  std::optional<tasks::ranking::EvaluatedAt> at = std::nullopt;
  std::optional<std::size_t> most_rows = std::nullopt;  // most rows of append_row()
  // Gets the outputs of this rank's batches, part by part in their order.
  std::function<void(std::span<const float>)> own_output = [](std::span<const float>) {};
};

// Runs the model over the split; batch k is computed by rank k mod W, so the same batches exist
// whatever W is, and the result is that of one process, bit for bit. Collective. Every rank returns
// the same object: <prefix>_<metric>…, <prefix>_runtime, <prefix>_samples_per_second,
// <prefix>_steps_per_second (as HF's speed_metrics), which rank 0 computed. Throws CommError,
// IoError.
nlohmann::ordered_json evaluate(const EvaluationRequest& request, const kernels::Context& context,
                                comm::Communicator& communicator, tasks::Task& task,
                                const nn::Weights& weights, Observer& observer);
// The same, but once `stop` is true on any rank, the evaluation ends early on all ranks, which
// throw Interrupted.
nlohmann::ordered_json evaluate_until_stopped(const EvaluationRequest& request,
                                              const kernels::Context& context,
                                              comm::Communicator& communicator, tasks::Task& task,
                                              const nn::Weights& weights, Observer& observer,
                                              const std::atomic<bool>& stop);

// HF's speed_metrics: <prefix>_runtime (4 decimals) and rates (3 decimals) for what is given.
void add_speed_metrics(nlohmann::ordered_json& metrics, const std::string& prefix, double seconds,
                       double num_samples, double num_steps);

// Python's round(value, digits).
double round_digits(double value, int digits);

}  // namespace tandem::trainer
