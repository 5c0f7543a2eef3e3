#include "tandem/job/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tandem/comm/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/memory_usage.h"
#include "tandem/job/memory_shortage.h"
#include "tandem/quant/linear_layers.h"
#include "tandem/tasks/step_batches.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::job {
namespace {

// The unit of both lines.
// Scratch is reserved generously; these are the parts that a step touches: the largest weight
// packed for a product, and a tile of a product or a head of attention per thread.
std::size_t scratch_bytes(const models::ModelConfig& config, bool bf16, int num_threads) {
  const std::size_t largest_weight =
      config.hidden_size * std::max(config.intermediate_size, 3 * config.hidden_size);
  const std::size_t packed = largest_weight * (bf16 ? sizeof(bfloat16) : sizeof(float));
  return std::min(packed, kernels::Scratch::kSharedBytes) +
         static_cast<std::size_t>(num_threads) * (std::size_t{1} << 20);
}

// Pages of the program and of its heap that the first steps touch, measured in jobs on the demo's
// model: between 4.0 and 4.6 MiB, whatever the number of ranks.
constexpr std::size_t kTouchedBySteps = std::size_t{17} << 18;

// Additional memory of an evaluation: the outputs of a rank's share of the features, and the
// message to rank 0. On rank 0 the outputs of all ranks exist twice, as received and in order, then
// in order together with their results. The outputs of a single rank are in order at once.
void plan_outputs(const trainer::TrainingArguments& training, tasks::JobTask& task, bool main,
                  int ranks, MemoryPlan& plan) {
  const std::size_t copies = ranks == 1 ? 1 : 2;
  const std::size_t outputs = task.output_bytes();
  const std::size_t share = copies * outputs / static_cast<std::size_t>(ranks);
  plan.evaluation = task.plan_evaluation() + share;
  if (!main) return;
  const std::size_t results =
      task.result_bytes({training.do_train, training.do_eval, training.do_predict});
  plan.main_only = std::max(copies * outputs, outputs + results) - share;
  plan.evaluation += plan.main_only;
}

// Bytes that a rank holds for the other shards between the two passes of a step.
std::size_t step_bytes(const trainer::TrainingArguments& training,
                       const dist::GradientEngine& gradients, const tasks::Task& task) {
  return task.step_bytes(
      {.first_shard = gradients.shards().begin,
       .end_shard = gradients.shards().end,
       .shards = static_cast<std::size_t>(gradients.logical_shards()),
       .micro_batches = static_cast<std::size_t>(training.gradient_accumulation_steps),
       .sizes = {}},
      static_cast<std::size_t>(training.per_device_train_batch_size));
}

// The sum of `value` over the ranks of this rank's node.
std::size_t sum_over_node(std::size_t value, comm::Communicator& communicator) {
  const std::uint64_t own = value;
  std::vector<std::uint64_t> of_ranks(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::span(&own, 1), std::span(of_ranks));
  std::size_t sum = 0;
  for (const int member : communicator.node().members)
    sum += of_ranks[static_cast<std::size_t>(member)];
  return sum;
}

std::size_t largest_parameter(const nn::ParameterLayout& layout) {
  std::size_t largest = 0;
  for (const nn::ParameterSpec& parameter : layout.parameters())
    largest = std::max(largest, parameter.size);
  return largest;
}

}  // namespace

MemoryPlan plan_memory(const trainer::TrainingArguments& training, const kernels::Context& context,
                       const comm::Communicator& communicator,
                       const dist::GradientEngine& gradients, const PlannedTask& task,
                       int workers) {
  MemoryPlan plan;
  plan.workers = workers;
  plan.node = gradients.memory_of_node(workers);
  if (training.do_train) {
    const auto steps =
        trainer::make_training_plan(training, task.of_trainer, gradients.logical_shards());
    plan.batch_rows = trainer::largest_batch(
        training, steps, task.of_trainer, gradients.shards().begin, gradients.shards().end,
        [&](std::span<const std::uint32_t> batch) { return task.of_job.train_batch_rows(batch); });
    plan.activations = task.of_job.plan_training(
        static_cast<std::size_t>(training.per_device_train_batch_size), plan.batch_rows);
    plan.activations += step_bytes(training, gradients, task.of_trainer);
    // The order of an epoch.
    plan.activations += task.of_trainer.num_train_features() * sizeof(std::uint32_t);
  } else {
    plan.node.gradients = 0;  // untouched address space
    plan.node.messages = plan.node.own_roots = 0;
  }
  plan.scratch =
      scratch_bytes(task.of_job.model_config(), training.bf16, context.threads.num_threads());
  if (training.do_eval || training.do_predict)
    plan_outputs(training, task.of_job, communicator.rank() == 0,
                 workers > 0 ? workers : communicator.size(), plan);
  const MemoryUsage now = memory_usage();
  // Memory that is already filled: the weights, with the frozen ones in bf16.
  const std::size_t filled = plan.node.weights + plan.node.frozen_operands;
  const std::size_t counted = (plan.node.shared ? 0 : filled) + plan.node.own_roots;
  plan.process = now.own() - std::min(now.own(), counted) + kTouchedBySteps;
  plan.loading = now.peak_share();
  if (workers > 0) {
    // The other workers may not have touched the shared memory yet.
    plan.loading = now.peak_share_of(static_cast<std::size_t>(workers));
    plan.agent = memory_usage_of_parent().own();
    // The state has an arena of gradients as large as the trained weights. Tensors of the model's
    // file are in memory one at a time.
    const std::size_t gradient = training.do_train ? plan.node.trained_weights : 0;
    plan.state_loading = plan.node.weights + plan.node.bf16_weights + plan.node.optimizer_state +
                         gradient + largest_parameter(task.of_trainer.layout()) * sizeof(float);
  }
  return plan;
}

std::size_t compared_output_bytes(const quant::QuantizationArguments& options,
                                  const tasks::JobTask& task,
                                  const comm::Communicator& communicator) {
  if (!options.apply_quantization) return 0;
  const std::size_t copies = options.max_trials > 1 || options.verify_loading ? 2 : 1;
  return copies * task.output_bytes() / static_cast<std::size_t>(communicator.size());
}

std::size_t quantization_bytes(const Arguments& arguments, tasks::Task& task) {
  const quant::QuantizationArguments& options = arguments.quantization;
  if (!options.apply_quantization) return 0;
  std::size_t elements = 0;  // elements of the linear layers
  for (const quant::LinearLayer& layer : quant::linear_layers(task.layout()))
    elements += layer.linear.out_features * layer.linear.in_features;
  std::size_t bytes = 3 * elements;
  if (options.verify_loading) bytes += task.layout().size() * sizeof(float);
  // Training needs more in the same memory.
  if (options.quantization_approach == quant::Approach::kStatic && !arguments.trains()) {
    bytes += task.plan_calibration(
        static_cast<std::size_t>(arguments.training.per_device_eval_batch_size));
  }
  return bytes;
}

namespace {

// Sum over the ranks of this node: the private memory of each, and the peak of its loading.
struct NodeSums {
  std::size_t ranks = 0, own = 0, loading = 0;
};

NodeSums sums_of_node(const MemoryPlan& plan, comm::Communicator& communicator) {
  if (plan.workers == 0) {
    return {static_cast<std::size_t>(communicator.local_size()),
            sum_over_node(plan.of_rank(), communicator), sum_over_node(plan.loading, communicator)};
  }
  const auto ranks = static_cast<std::size_t>(plan.workers);
  return {ranks, ranks * plan.of_rank() - (ranks - 1) * plan.main_only,
          std::max(ranks * plan.loading, ranks * plan.process + plan.state_loading)};
}

}  // namespace

std::size_t print_memory_plan(const MemoryPlan& plan, comm::Communicator& communicator,
                              Console& console) {
  const NodeSums sums = sums_of_node(plan, communicator);
  const std::size_t peak = std::max(sums.own + plan.node.total(), sums.loading) + plan.agent;
  const dist::MemoryPerNode& node = plan.node;
  console.fact("memory", fmt::format("{:.0f} MiB on this node at the peak", mebibytes(peak)));
  console.detail(
      "memory",
      fmt::format(
          "weights {:.0f}, bf16 copy {:.0f}, optimizer {:.0f}, gradients {:.0f}; in each of {} "
          "rank{} activations {:.0f} (batch of {} rows), scratch {:.0f}, evaluation {:.0f}, "
          "{}program and data {:.0f}{}",
          mebibytes(node.weights), mebibytes(node.bf16_weights), mebibytes(node.optimizer_state),
          mebibytes(node.gradients), sums.ranks, sums.ranks == 1 ? "" : "s",
          mebibytes(plan.activations), plan.batch_rows, mebibytes(plan.scratch),
          mebibytes(plan.evaluation),
          plan.quantization == 0
              ? ""
              : fmt::format("quantization {:.0f}, ", mebibytes(plan.quantization)),
          mebibytes(plan.process),
          plan.agent == 0 ? "" : fmt::format("; the agent {:.0f}", mebibytes(plan.agent))));
  return peak;
}

// Memory shared by the ranks of a node counts for the rank that touches it first: a part for each.
// A worker of an elastic job plans for the others of its node, too.
void check_memory_limits(const MemoryPlan& plan, comm::Communicator& communicator,
                         Console& console) {
  const auto ranks = static_cast<std::size_t>(sums_of_node(plan, communicator).ranks);
  const int node = communicator.node().members.front();
  std::vector<LimitedRank> own;
  const auto add_rank = [&](int rank, std::size_t of_rank) {
    const std::size_t planned = std::max(of_rank + plan.node.total() / ranks, plan.loading);
    for (MemoryLimit& limit : memory_limits())
      own.push_back({rank, node, std::move(limit), planned});
  };
  add_rank(communicator.rank(), plan.of_rank());
  for (int worker = 1; worker < plan.workers; ++worker)
    add_rank(worker, plan.of_rank() - plan.main_only);
  // Most of the planned memory is reserved by now.
  if (const std::size_t limit = address_space_limit();
      limit != std::numeric_limits<std::size_t>::max()) {
    own.push_back({communicator.rank(),
                   node,
                   {"the limit of address space (RLIMIT_AS, 'ulimit -v')",
                    fmt::format("rank {}", communicator.rank()), limit, 0},
                   address_space() + plan.quantization});
  }
  std::string all;
  for (const std::string& text : all_gather_texts(communicator, write_limits(own))) all += text;
  const auto shortage = find_shortage(read_limits(all));
  if (!shortage) return;
  if (shortage->fatal) throw ConfigError(shortage->text);
  console.warning(shortage->text);
}

void print_memory_used(std::size_t planned, bool has_agent, comm::Communicator& communicator,
                       Console& console) {
  const std::size_t of_agent = has_agent ? memory_usage_of_parent().peak_share() : 0;
  const std::size_t used = sum_over_node(memory_usage().peak_share(), communicator) + of_agent;
  const double more =
      100 *
      (static_cast<double>(used) / static_cast<double>(std::max<std::size_t>(1, planned)) - 1);
  console.script_line("INFO",
                      fmt::format("memory used on this node: {:.0f} MiB, planned {:.0f} ({:+.1f}%)",
                                  mebibytes(used), mebibytes(planned), more));
}

}  // namespace tandem::job
