// The interface between the trainer and a task; the trainer knows nothing else of it. A task owns
// its model, its features and its loss; the trainer owns steps, ranks, the optimizer and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/kernels/context.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::data {
class EpochBatches;  // epoch_order.h
}

namespace tandem::tasks {

// The set that is evaluated: --do_eval's validation set or --do_predict's test set.
enum class Split { kEval, kPredict };

// One forward/backward pass, described for speed reports.
struct BatchSize {
  std::size_t real_tokens = 0;  // tokens of the features
  std::size_t computed_tokens =
      0;             // rows of the matrices: real tokens and whatever padding was asked for
  double flops = 0;  // multiply-adds ×2 of forward and backward
};

// An epoch that a task makes the batches of.
struct EpochRequest {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::size_t batch_size = 0;  // features of a shard
  std::size_t shards = 1;      // batch k belongs to shard k mod shards
  bool drop_last = false;      // short batches are left out
};

struct EpochBegin {
  std::uint64_t epoch = 0;
  const data::EpochBatches& batches;
  std::size_t first_batch = 0;
};

struct Evaluation;   // evaluation.h
struct StepBatches;  // step_batches.h
struct BatchPosition;
struct StepBegin;

class Task {
 public:
  virtual ~Task() = default;

  // --- parameters ---
  virtual const nn::ParameterLayout& layout() const = 0;
  // Parameters that are not embedding tables; HF's total_flos counts only these.
  virtual std::size_t num_parameters_without_embeddings() const = 0;
  // Writes the model (weights in f32) and its config into an existing directory, and
  // save_other_files().
  virtual void save_pretrained(const std::filesystem::path& directory,
                               std::span<const float> weights) const = 0;
  // Writes the other files that a user needs to run the model: the tokenizer, the modules behind an
  // encoder.
  virtual void save_other_files(const std::filesystem::path& directory,
                                std::span<const float> weights) const = 0;

  // --- training ---
  virtual std::size_t num_train_features() const = 0;
  // Relative cost of each training feature, in any unit; empty when all cost the same (they are
  // padded).
  virtual std::span<const float> train_costs() const = 0;
  // Tokens of each training feature as a batch would hold it, for --group_by_length.
  virtual std::vector<std::uint32_t> train_lengths() const = 0;
  // The batches of an epoch, for tasks in which it matters which features are together; none: the
  // trainer cuts its own order into batches.
  virtual std::vector<std::vector<std::uint32_t>> train_batches(const EpochRequest&) const {
    return {};
  }
  // How many batches all shards together get in an epoch, whatever its number; none:
  // num_train_features() cut into batches.
  virtual std::optional<std::size_t> num_train_batches(const EpochRequest&) const {
    return std::nullopt;
  }
  // An epoch begins, or continues behind its first `first_batch` batches of each shard; its batches
  // follow in their order. For tasks whose samples change from epoch to epoch.
  virtual void begin_epoch(const EpochBegin&) {}
  // Allocates what training batches of up to `batch_size` features need, so that steps allocate
  // nothing; returns the bytes.
  virtual std::size_t plan_training(std::size_t batch_size) = 0;
  // As plan_training() for batches that only go forward, which may need less.
  virtual std::size_t plan_calibration(std::size_t batch_size) { return plan_training(batch_size); }
  // Packs the features into the current batch. `first_sample` is the index of the first one in the
  // step's global batch: the key of the dropout masks, so that they depend neither on ranks nor on
  // threads.
  virtual BatchSize load_train_batch(std::span<const std::uint32_t> features,
                                     std::uint64_t first_sample) = 0;
  // The loss of the current batch: mean over its features.
  virtual double forward(const kernels::Context& context, const nn::Weights& weights,
                         const nn::DropoutStream& dropout) = 0;
  // Gradients of loss_scale · loss of the batch that forward() just computed, with the same
  // arguments. `accumulate`: added to grads, else grads is overwritten. gradient_ready(end):
  // grads[0, end) are final.
  virtual void backward(const kernels::Context& context, const nn::Weights& weights,
                        const nn::DropoutStream& dropout, double loss_scale, std::span<float> grads,
                        bool accumulate, FunctionRef<void(std::size_t end)> gradient_ready) = 0;
  // The labels that the loss of the current batch is the mean over, if the loss of a step is the
  // mean over all its labels; none: the mean over the micro-batches' losses.
  virtual std::optional<std::size_t> loss_labels() const { return std::nullopt; }
  // A step begins, on every rank. For a loss that compares several batches of the step: it may load
  // them now, and exchange values with the other ranks. Whatever an earlier step left behind is
  // forgotten, because a failed step is repeated.
  virtual void begin_step(const StepBegin&) {}
  // The current batch, of which forward() and backward() follow, is the one at this position of the
  // step.
  virtual void select_batch(const BatchPosition&) {}
  // Bytes that a step needs in addition to plan_training(), with up to `batch_size` features in a
  // micro-batch.
  virtual std::size_t step_bytes(const StepBatches&, std::size_t /*batch_size*/) const { return 0; }

  // --- evaluation ---
  virtual std::size_t num_features(Split split) const = 0;
  // The examples that these are made of, as scripts count them in results and speeds.
  virtual std::size_t num_samples(Split split) const { return num_features(split); }
  // With what the names of a prediction's metrics begin in the task's script.
  virtual std::string_view prediction_prefix() const { return "test"; }
  // Appends the model's output for features [begin, end) of the split to `output`, without dropout;
  // counted in the order in which the task likes to compute them, which evaluate() undoes. [begin,
  // end) is a batch: begin is a multiple of the evaluation batch size, so that the result does not
  // depend on which rank computes it.
  virtual void predict(const kernels::Context& context, const nn::Weights& weights, Split split,
                       std::size_t begin, std::size_t end, std::vector<float>& output) = 0;
  // How many values that appends.
  virtual std::size_t output_size(Split split, std::size_t begin, std::size_t end) const = 0;
  // Whether rank 0 takes the outputs of a split part by part, because they may be larger than the
  // memory. evaluate() then gets none of them.
  virtual bool takes_outputs(Split) const { return false; }
  // The outputs of predict() for features [begin, end), which follow those of the last call or are
  // the first of an evaluation.
  virtual void take_outputs(Split, std::size_t /*begin*/, std::size_t /*end*/,
                            std::span<const float>) {}
  // Turns the concatenated outputs of predict() for all features into metrics, and writes
  // prediction files named `<prefix>_…` into `directory` unless it is empty.
  virtual Evaluation evaluate(Split split, std::span<const float> output,
                              const std::filesystem::path& directory, const std::string& prefix,
                              ThreadPool& threads) = 0;
};

}  // namespace tandem::tasks
