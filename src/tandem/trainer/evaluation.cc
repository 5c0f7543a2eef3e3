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
void run_until_stopped(const std::atomic<bool>& stop, comm::Communicator& communicator,
                       FunctionRef<void()> work) {
  std::int64_t stopped = 0;
  try {
    const InterruptionScope scope(stop);
    throw_if_interrupted();
    work();
  } catch (const Interrupted&) {
    stopped = 1;
  }
  if (communicator.size() > 1)
    communicator.all_reduce(std::span(&stopped, 1), comm::ReduceOp::kMax);
  if (stopped != 0) raise<Interrupted>("the evaluation was asked to stop");
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

// Runs the parts of an evaluation: at once, or until a request to stop.
using Run = FunctionRef<void(FunctionRef<void()> work)>;

class Evaluator {
 public:
  Evaluator(const EvaluationRequest& request, const kernels::Context& context,
            comm::Communicator& communicator, tasks::Task& task, const nn::Weights& weights,
            Observer& observer, Run run)
      : request_(request),
        context_(context),
        communicator_(communicator),
        task_(task),
        weights_(weights),
        observer_(observer),
        run_(run) {}

  ordered_json evaluate();

 private:
  using VisitBatch = FunctionRef<void(std::size_t begin, std::size_t end)>;

  // Features of a round: a batch of each rank.
  std::size_t round_size() const {
    return static_cast<std::size_t>(communicator_.size()) * request_.batch_size;
  }
  void for_own_batches(const FeatureRange& features, VisitBatch visit) const;
  LocalOutput predict_own_batches(const FeatureRange& features);
  std::vector<float> predict_all();
  ordered_json measure(std::span<const float> output);

  const EvaluationRequest& request_;
  const kernels::Context& context_;
  comm::Communicator& communicator_;
  tasks::Task& task_;
  const nn::Weights& weights_;
  Observer& observer_;
  const Run run_;
  const Clock::time_point start_ = Clock::now();
};

// The batches of this rank, one each round: number k is rank k mod W's. In the last round it may be
// empty.
void Evaluator::for_own_batches(const FeatureRange& features, VisitBatch visit) const {
  const std::size_t offset = static_cast<std::size_t>(communicator_.rank()) * request_.batch_size;
  for (std::size_t round = features.begin; round < features.end; round += round_size()) {
    const std::size_t begin = std::min(round + offset, features.end);
    visit(begin, std::min(begin + request_.batch_size, features.end));
  }
}

LocalOutput Evaluator::predict_own_batches(const FeatureRange& features) {
  LocalOutput output;
  const std::size_t num_features = task_.num_features(request_.split);
  const auto others = static_cast<std::size_t>(communicator_.size() - 1);
  // Memory that grew by copying would be there twice.
  std::size_t size = 0;
  for_own_batches(features, [&](std::size_t begin, std::size_t end) {
    if (begin < end) size += task_.output_size(request_.split, begin, end);
  });
  output.values.reserve(size);
  for_own_batches(features, [&](std::size_t begin, std::size_t end) {
    run_([&] {
      if (begin == end) return;
      output.batch_begin.push_back(output.values.size());
      task_.predict(context_, weights_, request_.split, begin, end, output.values);
    });
    observer_.evaluation_progress(std::min(num_features, end + others * request_.batch_size),
                                  num_features);
  });
  output.batch_begin.push_back(output.values.size());
  return output;
}

// The outputs of all features at rank 0; none if the task takes them part by part. A part has the
// batches of kRounds rounds.
std::vector<float> Evaluator::predict_all() {
  constexpr std::size_t kRounds = 64;
  const std::size_t num_features = task_.num_features(request_.split);
  const bool in_parts = task_.takes_outputs(request_.split);
  const std::size_t part =
      in_parts ? kRounds * round_size() : std::max<std::size_t>(1, num_features);
  std::vector<float> all;
  for (std::size_t begin = 0; begin < num_features || begin == 0; begin += part) {
    const FeatureRange features{begin, std::min(begin + part, num_features)};
    LocalOutput own = predict_own_batches(features);
    request_.own_output(own.values);
    all = gather(std::move(own), communicator_);
    if (!in_parts || communicator_.rank() != 0) continue;
    task_.take_outputs(request_.split, features.begin, features.end, all);
    all.clear();
  }
  return all;
}

// Metrics of all outputs, with the speed of the evaluation.
ordered_json Evaluator::measure(std::span<const float> output) {
  const std::size_t num_samples = task_.num_samples(request_.split);
  const tasks::Evaluation evaluation = task_.evaluate(request_.split, output, request_.directory,
                                                      request_.file_prefix, context_.threads);
  for (const std::string& warning : evaluation.warnings) observer_.warning(warning);
  if (request_.at) {
    for (const tasks::ranking::CsvTable& table : evaluation.tables)
      append_row(request_.directory / "eval", table, *request_.at, request_.most_rows);
  }
  ordered_json metrics = ordered_json::object();
  for (const auto& [key, value] : evaluation.metrics.items())
    metrics[request_.metric_prefix + "_" + key] = value;
  if (request_.preparation_seconds) {
    metrics[request_.metric_prefix + "_model_preparation_time"] =
        round_digits(*request_.preparation_seconds, 4);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  add_speed_metrics(metrics, request_.metric_prefix, seconds, static_cast<double>(num_samples),
                    static_cast<double>(num_chunks(num_samples, round_size())));
  return metrics;
}

ordered_json Evaluator::evaluate() {
  observer_.evaluation_begin(request_.split == tasks::Split::kEval ? "Evaluation" : "Prediction",
                             task_.num_samples(request_.split),
                             static_cast<int>(request_.batch_size));
  const EvaluationEnd end(observer_);
  const std::vector<float> output = predict_all();
  std::string metrics;
  run_([&] {
    if (communicator_.rank() == 0) metrics = measure(output).dump();
  });
  // NaN travels as null, for JSON has no other word that can be read again.
  ordered_json all = ordered_json::parse(broadcast_text(communicator_, metrics, 0));
  for (auto& [key, value] : all.items()) {
    if (value.is_null()) value = std::numeric_limits<double>::quiet_NaN();
  }
  return all;
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
  const auto at_once = [](FunctionRef<void()> work) { work(); };
  return Evaluator(request, context, communicator, task, weights, observer, at_once).evaluate();
}

ordered_json evaluate_until_stopped(const EvaluationRequest& request,
                                    const kernels::Context& context,
                                    comm::Communicator& communicator, tasks::Task& task,
                                    const nn::Weights& weights, Observer& observer,
                                    const std::atomic<bool>& stop) {
  const auto until_stopped = [&](FunctionRef<void()> work) {
    run_until_stopped(stop, communicator, work);
  };
  return Evaluator(request, context, communicator, task, weights, observer, until_stopped)
      .evaluate();
}

}  // namespace tandem::trainer
