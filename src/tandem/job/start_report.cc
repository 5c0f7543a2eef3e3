#include "tandem/job/start_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "tandem/core/cpu_model.h"
#include "tandem/job/precision_note.h"
#include "tandem/models/encoder/lora_config.h"
#include "tandem/trainer/checkpoint.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;

double gibibytes(double bytes) { return bytes / (1 << 30); }

// "gemm=avx512bf16, attention=avx512 (forced), …".
std::string chosen_kernels(const kernels::Context& context) {
  std::string chosen;
  for (const auto& choice : context.kernels.describe()) {
    chosen += fmt::format("{}{}={}{}", chosen.empty() ? "" : ", ", choice.operation,
                          choice.implementation, choice.forced ? " (forced)" : "");
  }
  return chosen;
}

}  // namespace

void print_model(const fs::path& directory, const tasks::JobTask& task,
                 const nn::ParameterLayout& layout, Console& console) {
  const models::ModelConfig& config = task.model_config();
  console.fact(
      "model",
      fmt::format("{}: {}, {} layers of {}, {} heads, {:.1f} million parameters",
                  directory.empty() ? "new, drawn from the seed" : directory.native(),
                  task.architecture(), config.num_hidden_layers, config.hidden_size,
                  config.num_attention_heads, static_cast<double>(layout.num_parameters()) / 1e6));
  if (!config.lora) return;
  const auto trained = static_cast<double>(layout.num_trainable_parameters());
  const auto all = static_cast<double>(layout.num_parameters());
  console.fact("adapter",
               fmt::format("rank {}, {:.3f} million parameters are trained ({:.2f} %), the others "
                           "are frozen",
                           config.lora->r, trained / 1e6, 100 * trained / all));
}

void print_start(const Request& request, const tasks::JobTask& task,
                 const rendezvous::Identity& identity, const comm::Communicator& communicator,
                 Console& console) {
  const auto& training = request.arguments.training;
  console.script_line("INFO", "The job (more with --log_level debug):");
  console.detail("process",
                 fmt::format("Process rank: {}, device: cpu, n_gpu: 0, distributed "
                             "training: {}, 16-bits training: False",
                             communicator.rank(), communicator.size() > 1 ? "True" : "False"));
  console.detail("arguments", request.lines());
  for (const std::string& note : request.notes) console.fact("note", note);
  if (!identity.note.empty()) console.fact("note", identity.note);
  if (communicator.size() > 1) console.fact("ranks", communicator.describe());
  console.detail("ranks", rendezvous::describe(identity));
  if (training.bf16) {
    console.detail("precision",
                   "bf16 products with f32 sums; f32 weights, gradients and optimizer");
  }
  task.describe(console);
}

void print_machine(const kernels::Context& context, const RankThreads& threads, double peak_flops,
                   const comm::Communicator& communicator, Console& console) {
  console.fact("threads", fmt::format("{} per rank ({})", threads.count, threads.reason));
  if (!threads.warning.empty() && communicator.local_rank() == 0) {
    console.warning_of_host(
        fmt::format("{}: {}", communicator.describe_rank(communicator.rank()), threads.warning));
  }
  console.detail("kernels", chosen_kernels(context));
  console.detail("kernels",
                 fmt::format("peak of this rank's threads {:.0f} GFLOP/s", peak_flops / 1e9));
}

std::vector<report::Fact> machine_facts(const kernels::Context& context, const RankThreads& threads,
                                        double peak_flops, const comm::Communicator& communicator,
                                        bool bf16) {
  return {{"CPU", cpu_model()},
          {"Ranks", fmt::format("{}; {}", communicator.size(), communicator.describe())},
          {"Threads of a rank", fmt::format("{} ({})", threads.count, threads.reason)},
          {"Kernels", chosen_kernels(context)},
          {"Precision", bf16 ? "bf16 products with f32 sums" : "f32"},
          {"Peak of a rank's threads", fmt::format("{:.0f} GFLOP/s", peak_flops / 1e9)}};
}

void print_bf16_rate(double f32_flops, double bf16_flops, Console& console) {
  const Bf16Rate rate = judge_bf16(f32_flops, bf16_flops);
  if (rate.faster) {
    console.fact("bf16", rate.text);
  } else {
    console.warning(rate.text);
  }
}

void print_load_report(const models::LoadReport& report, std::string_view model, bool trains,
                       Console& console) {
  // In transformers' words, but in readable lines.
  const auto log = [&](std::string_view level, const std::string& text) {
    console.library_line(level, "models", text);
  };
  const auto join = [](const std::vector<std::string>& names) {
    return fmt::format("['{}']", fmt::join(names, "', '"));
  };
  if (!report.unused.empty() || !report.ignored.empty()) {
    auto names = report.unused;
    names.insert(names.end(), report.ignored.begin(), report.ignored.end());
    log("INFO", fmt::format("Some weights of the model checkpoint at {} were not used: {}", model,
                            join(names)));
  }
  if (!report.grown.empty()) {
    log("INFO", fmt::format("The tokenizer has more tokens than the model had; new rows are the "
                            "mean of the others: {}",
                            fmt::join(report.grown, "; ")));
  }
  if (!report.newly_initialized.empty()) {
    const std::string why = report.mismatched.empty()
                                ? ""
                                : fmt::format("\nThe shapes of some did not match: {}",
                                              fmt::join(report.mismatched, "; "));
    log("WARNING", fmt::format("Some weights were not initialized from the model checkpoint at {} "
                               "and are newly initialized: {}{}\nYou should probably TRAIN this "
                               "model on a down-stream task to be able to use it for predictions "
                               "and inference.",
                               model, join(report.newly_initialized), why));
    if (!trains) {
      console.warning(
          fmt::format("the results of this run are random: {} has no {} and nothing is trained; "
                      "add --do_train, "
                      "or name a model that was trained for this task",
                      model, report.newly_initialized.front()));
    }
  }
}

void log_memory_location(const dist::GradientEngine& gradients, Console& console) {
  const std::string position = gradients.describe_position();
  if (!position.empty()) console.detail("memory", position);
}

void print_estimates(const trainer::TrainingArguments& training, const PlannedTask& task,
                     const dist::ModelState& state, const dist::GradientEngine& gradients,
                     const comm::Communicator& communicator, Console& console) {
  if (!training.do_train) return;
  task.of_job.describe_training(
      {.shards = static_cast<std::size_t>(gradients.logical_shards()),
       .batch_size = static_cast<std::size_t>(training.per_device_train_batch_size)},
      console);
  console.detail("gradients", gradients.describe());
  log_memory_location(gradients, console);
  const auto plan =
      trainer::make_training_plan(training, task.of_trainer, gradients.logical_shards());
  std::int64_t checkpoints = 0;
  if (plan.save_steps > 0) checkpoints = (plan.total_steps + plan.save_steps - 1) / plan.save_steps;
  const bool by_steps = training.save_strategy == trainer::SaveStrategy::kSteps;
  if (by_steps && plan.save_steps <= 0) checkpoints = std::min<std::int64_t>(1, plan.total_steps);
  if (training.save_strategy == trainer::SaveStrategy::kEpoch) checkpoints = plan.num_epochs;
  if (training.save_total_limit)
    checkpoints = std::min<std::int64_t>(checkpoints, *training.save_total_limit);
  const auto checkpoint = static_cast<double>(trainer::checkpoint_bytes(
      task.of_trainer.layout(), training.save_only_model ? 0 : state.optimizer_state().size()));
  const auto model = static_cast<double>(trainer::checkpoint_bytes(task.of_trainer.layout(), 0));
  const double needed = checkpoint * static_cast<double>(checkpoints) + model;
  struct statvfs disk {};
  const bool known = ::statvfs(training.output_dir.c_str(), &disk) == 0;
  const double free =
      known ? static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) : 0;
  console.fact("disk", fmt::format("{:.2f} GiB for {} checkpoint{} and the model; {:.1f} GiB are "
                                   "free in {}",
                                   gibibytes(needed), checkpoints, checkpoints == 1 ? "" : "s",
                                   gibibytes(free), training.output_dir));
  if (known && needed > free && (communicator.rank() == 0 || training.save_on_each_node) &&
      communicator.local_rank() == 0) {
    console.warning_of_host(fmt::format(
        "{}: the checkpoints will not fit on the disk of {}: pass --save_total_limit, or a larger "
        "--save_steps",
        communicator.describe_rank(communicator.rank()), training.output_dir));
  }
}

}  // namespace tandem::job
