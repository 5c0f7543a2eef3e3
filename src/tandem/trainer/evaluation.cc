#include "tandem/trainer/evaluation.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/comm/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/core/json.h"
#include "tandem/tasks/evaluation.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// The outputs of the batches that this rank computes, and where each begins.
struct LocalOutput {
  std::vector<float> values;
  std::vector<std::size_t> batch_begin;
};

// Features [begin, end) of a split: whole rounds, but for the last one.
struct FeatureRange {
  std::size_t begin = 0, end = 0;
};

// Calls work(), which a request to stop may end at any place: then all ranks throw Interrupted,
// those too that got no request. They meet for that, so it is not work that others wait for.
void run_until_stopped(const EvaluationRequest& request, comm::Communicator& communicator,
                       FunctionRef<void()> work) {
  if (request.stop == nullptr) return work();
  std::int64_t stopped = 0;
  try {
    const InterruptionScope scope(*request.stop);
    throw_if_interrupted();
    work();
  } catch (const Interrupted&) {
    stopped = 1;
  }
  if (communicator.size() > 1)
    communicator.all_reduce(std::span(&stopped, 1), comm::ReduceOp::kMax);
  if (stopped != 0) raise<Interrupted>("the evaluation was asked to stop");
}

// Features of a round: a batch of each rank.
std::size_t round_size(const EvaluationRequest& request, const comm::Communicator& communicator) {
  return static_cast<std::size_t>(communicator.size()) * request.batch_size;
}

// The batches of this rank, one each round: number k is rank k mod W's. In the last round it may be
// empty.
void for_own_batches(const EvaluationRequest& request, const comm::Communicator& communicator,
                     const FeatureRange& features,
                     FunctionRef<void(std::size_t begin, std::size_t end)> visit) {
  const std::size_t offset = static_cast<std::size_t>(communicator.rank()) * request.batch_size;
  const std::size_t stride = round_size(request, communicator);
  for (std::size_t round = features.begin; round < features.end; round += stride) {
    const std::size_t begin = std::min(round + offset, features.end);
    visit(begin, std::min(begin + request.batch_size, features.end));
  }
}

LocalOutput predict_own_batches(const EvaluationRequest& request, const kernels::Context& context,
                                comm::Communicator& communicator, tasks::Task& task,
                                const nn::Weights& weights, const FeatureRange& features,
                                Observer& observer) {
  LocalOutput output;
  const std::size_t num_features = task.num_features(request.split);
  const auto others = static_cast<std::size_t>(communicator.size() - 1);
  // Memory that grew by copying would be there twice.
  std::size_t size = 0;
  for_own_batches(request, communicator, features, [&](std::size_t begin, std::size_t end) {
    if (begin < end) size += task.output_size(request.split, begin, end);
  });
  output.values.reserve(size);
  for_own_batches(request, communicator, features, [&](std::size_t begin, std::size_t end) {
    run_until_stopped(request, communicator, [&] {
      if (begin == end) return;
      output.batch_begin.push_back(output.values.size());
      task.predict(context, weights, request.split, begin, end, output.values);
    });
    observer.evaluation_progress(std::min(num_features, end + others * request.batch_size),
                                 num_features);
  });
  output.batch_begin.push_back(output.values.size());
  return output;
}

// Messages carry raw bytes: first the batch boundaries, then the values.
std::string serialize(const LocalOutput& output) {
  const std::uint64_t num_boundaries = output.batch_begin.size();
  std::string bytes;
  bytes.reserve((1 + num_boundaries) * sizeof(std::uint64_t) +
                output.values.size() * sizeof(float));
  const auto append = [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  append(&num_boundaries, sizeof num_boundaries);
  append(output.batch_begin.data(), num_boundaries * sizeof(std::size_t));
  append(output.values.data(), output.values.size() * sizeof(float));
  return bytes;
}

// A rank's message, read where it lies.
class ReceivedOutput {
 public:
  explicit ReceivedOutput(const std::string& bytes) {
    std::uint64_t num_boundaries = 0;
    std::memcpy(&num_boundaries, bytes.data(), sizeof num_boundaries);
    batch_begin_.resize(num_boundaries);
    const char* at = bytes.data() + sizeof num_boundaries;
    std::memcpy(batch_begin_.data(), at, num_boundaries * sizeof(std::size_t));
    values_ = at + num_boundaries * sizeof(std::size_t);
  }
  std::size_t batches() const { return batch_begin_.size() - 1; }
  std::size_t size() const { return batch_begin_.back(); }
  void append_batch(std::size_t batch, std::vector<float>& to) const {
    const std::size_t begin = batch_begin_[batch];
    const std::size_t count = batch_begin_[batch + 1] - begin;
    to.resize(to.size() + count);
    std::memcpy(to.data() + to.size() - count, values_ + begin * sizeof(float),
                count * sizeof(float));
  }

 private:
  std::vector<std::size_t> batch_begin_;
  const char* values_;
};

// Batch k came from rank k mod W: put them back in order.
std::vector<float> interleave(const std::vector<std::string>& parts) {
  const std::vector<ReceivedOutput> outputs(parts.begin(), parts.end());
  std::size_t total = 0;
  for (const ReceivedOutput& output : outputs) total += output.size();
  std::vector<float> values;
  values.reserve(total);
  for (std::size_t round = 0; round < outputs[0].batches(); ++round) {
    for (const ReceivedOutput& output : outputs) {
      if (round < output.batches()) output.append_batch(round, values);
    }
  }
  return values;
}

// The outputs of all ranks in order, at rank 0. Logits of a large set are many megabytes: no copy
// of them lives longer than it must.
std::vector<float> gather(LocalOutput own, comm::Communicator& communicator) {
  if (communicator.size() == 1) return std::move(own.values);
  const std::vector<std::string> parts = [&] {
    const std::string message = serialize(own);
    own = {};
    return gather_texts(communicator, message, 0);
  }();
  return parts.empty() ? std::vector<float>() : interleave(parts);
}

// The outputs of all features at rank 0; none if the task takes them part by part. A part has the
// batches of kRounds rounds.
std::vector<float> predict_all(const EvaluationRequest& request, const kernels::Context& context,
                               comm::Communicator& communicator, tasks::Task& task,
                               const nn::Weights& weights, Observer& observer) {
  constexpr std::size_t kRounds = 64;
  const std::size_t num_features = task.num_features(request.split);
  const bool in_parts = task.takes_outputs(request.split);
  const std::size_t part = in_parts ? kRounds * round_size(request, communicator)
                                    : std::max<std::size_t>(1, num_features);
  if (request.own_output != nullptr) request.own_output->clear();
  std::vector<float> all;
  for (std::size_t begin = 0; begin < num_features || begin == 0; begin += part) {
    const FeatureRange features{begin, std::min(begin + part, num_features)};
    LocalOutput own =
        predict_own_batches(request, context, communicator, task, weights, features, observer);
    if (request.own_output != nullptr) {
      request.own_output->insert(request.own_output->end(), own.values.begin(), own.values.end());
    }
    all = gather(std::move(own), communicator);
    if (!in_parts || communicator.rank() != 0) continue;
    task.take_outputs(request.split, features.begin, features.end, all);
    all.clear();
  }
  return all;
}

// Notifies the observer, however the evaluation ends.
class EvaluationEnd {
 public:
  explicit EvaluationEnd(Observer& observer) : observer_(observer) {}
  ~EvaluationEnd() { observer_.evaluation_end(); }
  EvaluationEnd(const EvaluationEnd&) = delete;
  EvaluationEnd& operator=(const EvaluationEnd&) = delete;

 private:
  Observer& observer_;
};

// Metrics of all outputs, with the speed of an evaluation that began at `start`.
ordered_json measure(const EvaluationRequest& request, std::span<const float> output,
                     Clock::time_point start, ThreadPool& threads, int world_size,
                     tasks::Task& task, Observer& observer) {
  const std::size_t num_samples = task.num_samples(request.split);
  const tasks::Evaluation evaluation =
      task.evaluate(request.split, output, request.directory, request.file_prefix, threads);
  for (const std::string& warning : evaluation.warnings) observer.warning(warning);
  if (request.at) {
    for (const tasks::ranking::CsvTable& table : evaluation.tables)
      append_row(request.directory / "eval", table, *request.at, request.most_rows);
  }
  ordered_json metrics = ordered_json::object();
  for (const auto& [key, value] : evaluation.metrics.items())
    metrics[request.metric_prefix + "_" + key] = value;
  if (request.preparation_seconds) {
    metrics[request.metric_prefix + "_model_preparation_time"] =
        round_digits(*request.preparation_seconds, 4);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::size_t stride = request.batch_size * static_cast<std::size_t>(world_size);
  add_speed_metrics(metrics, request.metric_prefix, seconds, static_cast<double>(num_samples),
                    static_cast<double>(num_chunks(num_samples, stride)));
  return metrics;
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
  const auto start = Clock::now();
  observer.evaluation_begin(request.split == tasks::Split::kEval ? "Evaluation" : "Prediction",
                            task.num_samples(request.split), static_cast<int>(request.batch_size));
  const EvaluationEnd end(observer);
  const std::vector<float> output =
      predict_all(request, context, communicator, task, weights, observer);
  std::string metrics;
  run_until_stopped(request, communicator, [&] {
    if (communicator.rank() == 0) {
      metrics =
          measure(request, output, start, context.threads, communicator.size(), task, observer)
              .dump();
    }
  });
  // NaN travels as null, for JSON has no other word that can be read again.
  ordered_json all = ordered_json::parse(broadcast_text(communicator, metrics, 0));
  for (auto& [key, value] : all.items()) {
    if (value.is_null()) value = std::numeric_limits<double>::quiet_NaN();
  }
  return all;
}

}  // namespace tandem::trainer
