// `tandem bench step`: whole training steps, and where their time goes. The step is the trainer's
// own (train_step.h); weights and tokens are random, which does not change the time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "apps/bench/data.h"
#include "apps/bench/session.h"
#include "apps/bench/training.h"
#include "tandem/core/error.h"
#include "tandem/core/profile.h"

namespace tandem::apps::bench {
namespace {

using nlohmann::ordered_json;

struct StepOptions {
  Options common;
  BatchOptions batch;
  std::string model = "bert-base";
  std::string lengths = "padded";
  std::string task = "question-answering";
};

nn::Precision precision_of(Dtype dtype) {
  return dtype == Dtype::kF32 ? nn::Precision::kFloat32 : nn::Precision::kBfloat16;
}

// Loss and gradient norm of one step of a few tokens through two layers against the reference, as a
// share of what is allowed: bf16 rounds every activation. All layers and words would cost the
// reference minutes and show nothing more.
double step_error(Session& session, models::ModelConfig config, Dtype dtype, Head head) {
  config.num_hidden_layers = std::min<std::size_t>(config.num_hidden_layers, 2);
  config.vocab_size = std::min<std::size_t>(config.vocab_size, 1000);
  config.pad_token_id = std::min(config.pad_token_id, 0);  // ModernBERT's is above the vocabulary
  const std::vector<std::uint32_t> lengths = {5, 3};
  const auto step_with = [&](const kernels::Context& context) {
    return Training(context, config, precision_of(dtype), lengths, head).step(nullptr);
  };
  const trainer::StepResult got = step_with(session.context());
  const trainer::StepResult want = step_with(session.reference());
  const double allowed = dtype == Dtype::kF32 ? 1e-4 : 2e-2;
  const auto relative = [&](double a, double b) { return std::abs(a - b) / std::abs(b) / allowed; };
  // The sum rather than the larger one: a NaN stays.
  return relative(got.record.loss(0), want.record.loss(0)) +
         relative(got.grad_norm, want.grad_norm);
}

// FLOPs of the stages that are products, by "name part".
std::map<std::string, double> stage_flops(const RandomBatch& task) {
  std::map<std::string, double> flops;
  task.count_products([&](std::string_view stage, double multiply_adds) {
    const double once = 2 * multiply_adds;
    flops[fmt::format("{} forward", stage)] += once;
    if (stage == "attention") {
      flops["attention backward"] += 2 * once;
      return;
    }
    for (const char* part : {"dX", "dW"}) flops[fmt::format("{} {}", stage, part)] += once;
  });
  return flops;
}

double seconds(Profile::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The stages of one step and the rest, which is the difference: together they are the step.
ordered_json breakdown(Report& report, const Profile& profile, double step_seconds, double peak,
                       const std::map<std::string, double>& flops) {
  auto stages = ordered_json::array();
  const auto add = [&](const std::string& name, double time) {
    ordered_json stage = {
        {"stage", name}, {"seconds", time}, {"share_of_step", time / step_seconds}};
    std::string line =
        fmt::format("  {:<28} {:10.3f} ms {:5.1f} %", name, 1e3 * time, 100 * time / step_seconds);
    if (const auto found = flops.find(name); found != flops.end()) {
      const double rate = found->second / time;
      stage["gflops_per_second"] = rate * 1e-9;
      stage["share"] = rate / peak;
      line += fmt::format(" {:9.1f} GFLOP/s, {:.1f} % of the peak", rate * 1e-9, 100 * rate / peak);
    }
    report.line(line);
    stages.push_back(std::move(stage));
  };
  for (const Profile::Stage& stage : profile.stages()) {
    add(fmt::format("{} {}", stage.name, stage.part), seconds(stage.time));
  }
  add("rest", step_seconds - seconds(profile.total()));
  return stages;
}

// The stages that have FLOPs together, and what is left of the step.
ordered_json summarize_products(Report& report, const ordered_json& stages,
                                const std::map<std::string, double>& flops, double step_seconds,
                                double peak) {
  double time = 0;
  double total = 0;
  for (const auto& stage : stages) {
    const auto found = flops.find(stage["stage"].get<std::string>());
    if (found == flops.end()) continue;
    time += stage["seconds"].get<double>();
    total += found->second;
  }
  report.line(fmt::format(
      "  products and attention: {:.1f} % of the step, at {:.1f} % of the peak; all else {:.1f} %",
      100 * time / step_seconds, 100 * total / time / peak, 100 * (1 - time / step_seconds)));
  return {
      {"seconds", time}, {"share_of_step", time / step_seconds}, {"share", total / time / peak}};
}

struct Round {
  double seconds = 0;
  double peak = 0;
  Profile profile;
};

std::vector<Round> time_rounds(Session& session, Dtype dtype, Training& training) {
  training.step(nullptr);  // memory, scratch, caches
  std::vector<Round> made;
  Rounds count = session.options().all_rounds();
  Calibration before = session.peak_flops(dtype);
  while (count.more()) {
    Round& round = made.emplace_back();
    round.seconds = seconds_of([&] { training.step(&round.profile); });
    const Calibration after = session.peak_flops(dtype);
    round.peak = (before.rate + after.rate) / 2;
    count.add(before.undisturbed && after.undisturbed);
    before = after;
  }
  session.note(count);
  std::vector<Round> rounds;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (count.counts(i)) rounds.push_back(std::move(made[i]));
  }
  return rounds;
}

void report_rounds(Session& session, const StepOptions& options, Dtype dtype, double error,
                   const RandomBatch& task, std::vector<Round> rounds) {
  std::sort(rounds.begin(), rounds.end(),
            [](const Round& a, const Round& b) { return a.seconds < b.seconds; });
  Samples samples;
  for (const Round& round : rounds) {
    samples.seconds.push_back(round.seconds);
    samples.peaks.push_back(round.peak);
  }
  const double flops = task.training_flops();
  const auto tokens = static_cast<double>(task.batch().rows());
  const Statistics time = statistics(samples.seconds);
  const Statistics speed = samples.rates(tokens);
  const Statistics share = samples.shares(flops);
  std::string name = fmt::format("{} {}x{} {}", options.model, options.batch.batch,
                                 options.batch.seq, options.lengths);
  if (options.task != StepOptions{}.task) name += " " + options.task;
  Report& report = session.report();
  report.line(
      fmt::format("{} {}: {:.4f} s per step ({:.4f} – {:.4f}), {:.0f} tokens/s, {:.1f} % "
                  "of the peak ({:.1f} – {:.1f})",
                  name, to_string(dtype), time.median, time.min, time.max, speed.median,
                  100 * share.median, 100 * share.min, 100 * share.max));
  // The breakdown is that of one step, the (lower) median one, so that it adds up.
  const Round& middle = rounds[(rounds.size() - 1) / 2];
  const auto of_stages = stage_flops(task);
  ordered_json stages = breakdown(report, middle.profile, middle.seconds, middle.peak, of_stages);
  ordered_json products =
      summarize_products(report, stages, of_stages, middle.seconds, middle.peak);
  report.add({{"name", name},
              {"dtype", to_string(dtype)},
              {"verified", true},
              {"error", error},
              {"tokens", tokens},
              {"sequence_lengths", task.batch().key_count},
              {"flops", flops},
              {"seconds", to_json(time)},
              {"unit", "tokens/s"},
              {"rate", to_json(speed)},
              {"peak", middle.peak * 1e-9},
              {"share", to_json(share)},
              {"breakdown_of_seconds", middle.seconds},
              {"breakdown", std::move(stages)},
              {"products", std::move(products)}});
}

int run(const StepOptions& options, const Environment& environment) {
  Session session("step", options.common, environment);
  const Head head = head_of(options.task);
  const models::ModelConfig config = model_of(
      options.model, head == Head::kNext ? models::decoder_families() : models::families());
  const std::size_t batch = options.batch.batch;
  const std::size_t seq = options.batch.seq;
  const Dtype dtype = options.common.dtype == "bf16" ? Dtype::kBf16 : Dtype::kF32;
  const double error = step_error(session, config, dtype, head);
  if (!(error <= 1)) {
    session.found_wrong(
        fmt::format("loss or gradient norm differ {:.3g} times as much from the reference "
                    "as rounding explains",
                    error));
    session.report().add({{"name", options.model},
                          {"dtype", to_string(dtype)},
                          {"verified", false},
                          {"error", error}});
    return session.finish();
  }
  Training training(session.context(), config, precision_of(dtype),
                    named_lengths(options.lengths, batch, seq), head);
  std::vector<Round> rounds;
  session.watch([&] { rounds = time_rounds(session, dtype, training); });
  report_rounds(session, options, dtype, error, training.task(), std::move(rounds));
  return session.finish();
}

}  // namespace

Bench add_step(CLI::App& parent) {
  Flags flags(parent, "step", "whole training steps and their stages");
  auto options = std::make_shared<StepOptions>();
  options->common.add_to(flags);
  options->common.add_undisturbed_to(flags);
  options->batch.add_to(flags);
  flags.text("--model", options->model,
             fmt::format("{}, or a directory with a config.json", fmt::join(model_names(), ", ")));
  flags.choice("--lengths", options->lengths, kLengthsHelp, length_names());
  flags.choice("--task", options->task, "what the model's head is for", head_names());
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
