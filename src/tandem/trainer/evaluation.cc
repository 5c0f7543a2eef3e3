#include "tandem/trainer/evaluation.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "tandem/core/error.h"
#include "tandem/core/python_json.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

// The outputs of the batches that this rank computes, and where each begins.
struct LocalOutput {
  std::vector<float> values;
  std::vector<std::size_t> batch_begin;
};

LocalOutput predict_own_batches(const EvaluationRequest& request, const kernels::Context& context,
                                const comm::Communicator& communicator, tasks::Task& task,
                                const nn::Weights& weights, Observer& observer) {
  LocalOutput output;
  const std::size_t num_features = task.num_features(request.split);
  const auto world_size = static_cast<std::size_t>(communicator.size());
  for (std::size_t batch = static_cast<std::size_t>(communicator.rank());
       batch * request.batch_size < num_features; batch += world_size) {
    const std::size_t begin = batch * request.batch_size;
    const std::size_t end = std::min(begin + request.batch_size, num_features);
    output.batch_begin.push_back(output.values.size());
    task.predict(context, weights, request.split, begin, end, output.values);
    observer.evaluation_progress(std::min(num_features, (batch + world_size) * request.batch_size),
                                 num_features);
  }
  output.batch_begin.push_back(output.values.size());
  return output;
}

// Messages carry raw bytes: first the batch boundaries, then the values.
std::string serialize(const LocalOutput& output) {
  std::string bytes;
  const std::uint64_t num_boundaries = output.batch_begin.size();
  const auto append = [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  append(&num_boundaries, sizeof num_boundaries);
  append(output.batch_begin.data(), output.batch_begin.size() * sizeof(std::size_t));
  append(output.values.data(), output.values.size() * sizeof(float));
  return bytes;
}

LocalOutput deserialize(const std::string& bytes) {
  LocalOutput output;
  std::uint64_t num_boundaries = 0;
  std::memcpy(&num_boundaries, bytes.data(), sizeof num_boundaries);
  output.batch_begin.resize(num_boundaries);
  const char* at = bytes.data() + sizeof num_boundaries;
  std::memcpy(output.batch_begin.data(), at, num_boundaries * sizeof(std::size_t));
  at += num_boundaries * sizeof(std::size_t);
  output.values.resize(static_cast<std::size_t>(bytes.data() + bytes.size() - at) / sizeof(float));
  std::memcpy(output.values.data(), at, output.values.size() * sizeof(float));
  return output;
}

// Batch k came from rank k mod W: put them back in order.
std::vector<float> interleave(const std::vector<std::string>& parts) {
  std::vector<LocalOutput> outputs;
  for (const std::string& part : parts) outputs.push_back(deserialize(part));
  std::vector<float> values;
  for (std::size_t round = 0; round + 1 < outputs[0].batch_begin.size(); ++round) {
    for (const LocalOutput& output : outputs) {
      if (round + 1 >= output.batch_begin.size()) continue;
      values.insert(
          values.end(),
          output.values.begin() + static_cast<std::ptrdiff_t>(output.batch_begin[round]),
          output.values.begin() + static_cast<std::ptrdiff_t>(output.batch_begin[round + 1]));
    }
  }
  return values;
}

}  // namespace

double round_digits(double value, int digits) {
  if (!std::isfinite(value)) return value;
  return std::stod(fmt::format("{:.{}f}", value, digits));
}

void add_speed_metrics(ordered_json& metrics, const std::string& prefix, double seconds,
                       double num_samples, double num_steps) {
  metrics[prefix + "_runtime"] = round_digits(seconds, 4);
  if (seconds <= 0) return;
  metrics[prefix + "_samples_per_second"] = round_digits(num_samples / seconds, 3);
  metrics[prefix + "_steps_per_second"] = round_digits(num_steps / seconds, 3);
}

ordered_json evaluate(const EvaluationRequest& request, const kernels::Context& context,
                      comm::Communicator& communicator, tasks::Task& task,
                      const nn::Weights& weights, Observer& observer) {
  const auto start = std::chrono::steady_clock::now();
  const std::size_t num_features = task.num_features(request.split);
  observer.evaluation_begin(request.split == tasks::Split::kEval ? "Evaluation" : "Prediction",
                            num_features, static_cast<int>(request.batch_size));
  const LocalOutput own =
      predict_own_batches(request, context, communicator, task, weights, observer);
  const std::vector<std::string> parts = communicator.gather_texts(serialize(own), 0);
  if (request.own_output != nullptr) *request.own_output = own.values;

  std::string text;
  if (communicator.rank() == 0) {
    tasks::Evaluation evaluation = task.evaluate(
        request.split, interleave(parts), request.directory, request.file_prefix, context.threads);
    for (const std::string& warning : evaluation.warnings) observer.warning(warning);
    ordered_json metrics = ordered_json::object();
    for (const auto& [key, value] : evaluation.metrics.items())
      metrics[request.metric_prefix + "_" + key] = value;
    if (request.preparation_seconds) {
      metrics[request.metric_prefix + "_model_preparation_time"] =
          round_digits(*request.preparation_seconds, 4);
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto num_batches = static_cast<double>(num_chunks(
        num_features, request.batch_size * static_cast<std::size_t>(communicator.size())));
    add_speed_metrics(metrics, request.metric_prefix, seconds, static_cast<double>(num_features),
                      num_batches);
    text = python_json(metrics);
  }
  observer.evaluation_end();
  return ordered_json::parse(communicator.broadcast_text(text, 0));
}

}  // namespace tandem::trainer
