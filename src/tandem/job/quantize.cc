#include "tandem/job/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tandem/core/buffer.h"
#include "tandem/core/enum_name.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/quant/calibration.h"
#include "tandem/quant/int8_files.h"
#include "tandem/quant/load_model.h"
#include "tandem/quant/tuning.h"
#include "tandem/trainer/evaluation.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using quant::InputRanges;
using quant::QuantizedLinear;

// Directory of the best model if none is good enough.
constexpr const char* kRejectedFolder = "int8_below_tolerance";

struct Evaluated {
  ordered_json metrics;
  std::vector<float> own_output;  // logits of this rank's batches
};

// Metrics without times, which differ from run to run.
ordered_json without_times(const ordered_json& metrics) {
  ordered_json result = ordered_json::object();
  for (const auto& [key, value] : metrics.items()) {
    if (!key.ends_with("_runtime") && !key.ends_with("_per_second")) result[key] = value;
  }
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void write_results(const fs::path& directory, const ordered_json& results) {
  write_file(directory / "quantization_results.json", python_json(results, {.indent = 4}));
}

// The share of int8 weights that are 0.
double sparsity(std::span<const QuantizedLinear> linears) {
  std::size_t zeros = 0, all = 0;
  for (const QuantizedLinear& linear : linears) {
    const std::vector<std::int8_t>& values = linear.weight.values;
    zeros += static_cast<std::size_t>(std::count(values.begin(), values.end(), std::int8_t{0}));
    all += values.size();
  }
  return all == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(all);
}

std::string result_key(const std::string& metric) {
  return metric.starts_with("eval_") ? metric : "eval_" + metric;
}

class Quantizer {
 public:
  Quantizer(const TrainingRun& run, comm::Communicator& communicator, trainer::Observer& observer,
            bool saves)
      : run_(run),
        communicator_(communicator),
        observer_(observer),
        saves_(saves),
        options_(run.request.arguments.quantization),
        metric_(result_key(options_.metric.value_or(std::string(run.task.main_metric())))),
        layers_(quant::linear_layers(run.model.task.layout())) {}

  std::optional<Quantized> run();

 private:
  bool is_main() const { return communicator_.rank() == 0; }
  bool is_static() const { return options_.quantization_approach == quant::Approach::kStatic; }
  fs::path output_dir() const { return run_.training.output_dir; }
  std::span<const float> model_weights() const { return run_.weights.state->weights(); }

  Evaluated evaluate(const nn::Weights& weights, const fs::path& directory) const;
  double metric_of(const Evaluated& evaluated) const;
  bool greater_is_better() const {
    for (const tasks::LeadingMetric& metric : run_.task.leading_metrics().metrics)
      if (result_key(metric.key) == metric_) return !metric.less_is_better;
    return !metric_.ends_with("loss") && !metric_.ends_with("mse");
  }
  double drop(double baseline, double metric) const {
    return quant::relative_drop(baseline, metric, greater_is_better());
  }
  void calibrate();
  double attempt(const quant::Configuration& configuration);
  std::vector<QuantizedLinear> quantized(const quant::Configuration& configuration) const {
    return quant::quantize(layers_, model_weights(), ranges_, configuration);
  }
  void save(const fs::path& directory, std::span<const QuantizedLinear> linears) const;
  ordered_json results(const quant::TuningResult& tuning,
                       std::span<const QuantizedLinear> linears) const;
  void reject(const quant::TuningResult& tuning);
  bool verify() const;
  void log(const std::string& text) const { run_.observers.console.script_line("INFO", text); }

  const TrainingRun& run_;
  comm::Communicator& communicator_;
  trainer::Observer& observer_;
  const bool saves_;
  const quant::QuantizationArguments& options_;
  std::string metric_;
  std::vector<quant::LinearLayer> layers_;
  quant::CalibratedRanges ranges_;
  std::size_t calibration_samples_ = 0;
  double baseline_ = 0;
  int trials_ = 0;
  // For the last attempt.
  nn::Int8Linears packed_;
  Evaluated evaluated_;
};

Evaluated Quantizer::evaluate(const nn::Weights& weights, const fs::path& directory) const {
  Evaluated evaluated;
  const auto batch_size = static_cast<std::size_t>(run_.training.per_device_eval_batch_size);
  const auto keep = [&](std::span<const float> part) {
    evaluated.own_output.insert(evaluated.own_output.end(), part.begin(), part.end());
  };
  evaluated.metrics =
      trainer::evaluate({.directory = directory, .batch_size = batch_size, .own_output = keep},
                        run_.machine.context(), communicator_, run_.model.task, weights, observer_);
  return evaluated;
}

double Quantizer::metric_of(const Evaluated& evaluated) const {
  const auto found = evaluated.metrics.find(metric_);
  if (found == evaluated.metrics.end())
    raise<ConfigError>("--metric {}: the evaluation did not measure it", metric_);
  return found->get<double>();
}

void Quantizer::calibrate() {
  const trainer::TrainingArguments& training = run_.training;
  const std::size_t available = run_.model.task.num_train_features();
  const auto set =
      quant::calibration_set(available, static_cast<std::size_t>(options_.num_calibration_samples),
                             static_cast<std::uint64_t>(training.data_seed.value_or(training.seed)),
                             static_cast<std::size_t>(training.per_device_eval_batch_size));
  if (set.features.empty()) raise<DataError>("calibration: the training file gives no feature");
  calibration_samples_ = set.features.size();
  log(fmt::format("calibration: {} of {} training features", calibration_samples_, available));

  const nn::Weights weights{model_weights(), {}};
  ThreadPool& threads = run_.machine.context().threads;
  quant::ExtremesObserver extremes_observer(threads, layers_);
  quant::observe(run_.machine.context(), communicator_, run_.model.task, weights, set,
                 extremes_observer);
  const auto extremes = extremes_observer.reduce(communicator_);
  quant::HistogramObserver histogram_observer(threads, layers_, extremes);
  quant::observe(run_.machine.context(), communicator_, run_.model.task, weights, set,
                 histogram_observer);
  for (const quant::Histogram& histogram : histogram_observer.reduce(communicator_)) {
    ranges_.least_error.push_back(quant::least_error_range(histogram));
    ranges_.min_max.push_back(kernels::int8_range(histogram.extremes.min, histogram.extremes.max));
  }
}

double Quantizer::attempt(const quant::Configuration& configuration) {
  packed_ = quant::pack(run_.machine.context(), quantized(configuration));
  // The last attempt is the accepted one if any is, so its predictions stay.
  evaluated_ = evaluate({model_weights(), {}, &packed_}, output_dir());
  const double metric = metric_of(evaluated_);
  const std::string in_f32 =
      configuration.f32_blocks.empty()
          ? "all layers in int8"
          : fmt::format("{} in f32", fmt::join(configuration.f32_blocks, ", "));
  log(fmt::format(
      "int8 trial {} of at most {}: {} ranges, {}: {} {:.4f}, in f32 {:.4f}; drop {:.2f} %",
      ++trials_, options_.max_trials, to_string(configuration.ranges), in_f32, metric_, metric,
      baseline_, 100 * drop(baseline_, metric)));
  return metric;
}

void Quantizer::save(const fs::path& directory, std::span<const QuantizedLinear> linears) const {
  if (!saves_) return;
  fs::create_directories(directory);
  run_.observers.console.saving(directory);
  quant::save_int8(directory, run_.task.model_config(), run_.task.architecture(),
                   run_.model.task.layout(), model_weights(), linears);
  run_.model.task.save_other_files(directory, model_weights());
}

ordered_json Quantizer::results(const quant::TuningResult& tuning,
                                std::span<const QuantizedLinear> linears) const {
  const quant::Trial& chosen = tuning.chosen();
  ordered_json trials = ordered_json::array();
  for (const quant::Trial& trial : tuning.trials) {
    trials.push_back({{"input_ranges", to_string(trial.configuration.ranges)},
                      {"f32_layers", trial.configuration.f32_blocks},
                      {metric_, trial.metric}});
  }
  std::size_t modules = 0;
  for (const QuantizedLinear& linear : linears) modules += linear.layer.modules.size();
  // JSON has no infinity: a metric of 0 in f32 has no relative drop.
  const double relative = drop(tuning.baseline, chosen.metric);
  return {
      {"accepted", tuning.accepted},
      {"metric", metric_},
      {"baseline_" + metric_, tuning.baseline},
      {"int8_" + metric_, chosen.metric},
      {"relative_drop", std::isfinite(relative) ? ordered_json(relative) : ordered_json(nullptr)},
      {"tolerance_criterion", options_.tolerance_criterion},
      {"approach", enum_name(options_.quantization_approach)},
      {"input_ranges", to_string(chosen.configuration.ranges)},
      {"calibration_samples", calibration_samples_},
      {"int8_modules", modules},
      {"f32_layers", chosen.configuration.f32_blocks},
      {"weight_sparsity", sparsity(linears)},
      {"trials", trials}};
}

void Quantizer::reject(const quant::TuningResult& tuning) {
  const quant::Trial& best = tuning.chosen();
  const fs::path folder = output_dir() / kRejectedFolder;
  const std::vector<QuantizedLinear> linears = quantized(best.configuration);
  save(folder, linears);
  if (!is_main()) return;
  write_results(folder, results(tuning, linears));
  // The output of the last trial is not a result.
  for (const std::string& file : run_.task.result_files(tasks::Split::kEval)) {
    std::error_code ignored;
    fs::remove(output_dir() / file, ignored);
  }
  run_.observers.console.library_line(
      "ERROR", "tandem",
      fmt::format(
          "no int8 model is within the tolerance: {} is {:.4f} in f32 and at best {:.4f} in int8 "
          "after {} trials, a drop of {:.2f} %, allowed are {:.2f} %; the best one is in {}. Try a "
          "larger --max_trials, more --num_calibration_samples, --quantization_approach {}, or a "
          "larger --tolerance_criterion",
          metric_, tuning.baseline, best.metric, tuning.trials.size(),
          100 * drop(tuning.baseline, best.metric), 100 * options_.tolerance_criterion,
          folder.native(), is_static() ? "dynamic" : "static"));
}

bool Quantizer::verify() const {
  communicator_.barrier();  // rank 0 has written
  const nn::ParameterLayout& layout = run_.model.task.layout();
  const Buffer weights(layout.size() * sizeof(float));
  const models::Family* const family = run_.task.model_config().family;
  const std::filesystem::path config_file = output_dir() / "config.json";
  const auto config =
      models::ModelConfig::parse(read_file(config_file), config_file.native(), {&family, 1});
  const quant::LoadedModel loaded =
      quant::ModelFiles(output_dir(), config)
          .load(config, layout, run_.machine.context(), weights.as<float>(), {});
  if (!loaded.int8) raise<DataError>("{}: holds no int8 model", output_dir().native());
  const Evaluated again = evaluate({weights.as<float>(), {}, &*loaded.int8}, {});
  std::array<std::int64_t, 1> same{same_bits(again.own_output, evaluated_.own_output) &&
                                   without_times(again.metrics) ==
                                       without_times(evaluated_.metrics)};
  communicator_.all_reduce(std::span<std::int64_t>(same), comm::ReduceOp::kMin);
  if (same[0] != 0) {
    log("The quantized model was successfully loaded.");
    return true;
  }
  if (!is_main()) return false;
  run_.observers.console.library_line(
      "ERROR", "tandem",
      fmt::format("The quantized model was not successfully loaded: its logits differ from "
                  "those before saving ({} was {}, is {})",
                  metric_, metric_of(evaluated_), metric_of(again)));
  return false;
}

std::optional<Quantized> Quantizer::run() {
  log("*** Quantization ***");
  run_.task.set_precision(nn::Precision::kFloat32);
  baseline_ = metric_of(evaluate({model_weights(), {}}, {}));
  log(fmt::format("{} of the model in f32: {:.4f}", metric_, baseline_));
  std::vector<InputRanges> ranges = {InputRanges::kDynamic};
  if (is_static()) {
    calibrate();
    ranges = {InputRanges::kLeastError, InputRanges::kMinMax};
  }
  const quant::TuningResult tuning = quant::tune(
      baseline_, ranges, quant::blocks_of(layers_),
      {.tolerance = options_.tolerance_criterion,
       .max_trials = options_.max_trials,
       .greater_is_better = greater_is_better()},
      [&](const quant::Configuration& configuration) { return attempt(configuration); });
  if (!tuning.accepted) {
    reject(tuning);
    return std::nullopt;
  }
  const std::vector<QuantizedLinear> linears = quantized(tuning.chosen().configuration);
  save(output_dir(), linears);
  if (is_main()) {
    const ordered_json found = results(tuning, linears);
    write_results(output_dir(), found);
    ordered_json table = found;
    table.erase("trials");
    table.erase("f32_layers");
    run_.observers.console.metrics_table("quantization", table);
  }
  if (options_.verify_loading && !verify()) return std::nullopt;
  return Quantized{std::move(packed_), std::move(evaluated_.metrics)};
}

}  // namespace

std::optional<Quantized> quantize(const TrainingRun& run, comm::Communicator& communicator,
                                  trainer::Observer& observer, bool saves) {
  return Quantizer(run, communicator, observer, saves).run();
}

void warn_of_no_training(const Arguments& arguments, std::string_view examples, bool is_main,
                         Console& console) {
  if (!is_main || !arguments.training.do_train || arguments.trains()) return;
  const bool calibrates = arguments.quantization.quantization_approach == quant::Approach::kStatic;
  const std::string use = calibrates ? fmt::format("gives the {} to calibrate on", examples)
                                     : "is needed by --quantization_approach static only";
  console.script_line("WARNING",
                      fmt::format("{}no fine-tuning: with --apply_quantization, --do_train {}; "
                                  "--train_before_quantization trains first",
                                  calibrates ? "calibration only, " : "", use));
}

void check_use_of_int8(const quant::ModelFiles& files, const Arguments& arguments,
                       const trainer::TrainingArguments& training) {
  const bool quantizes = arguments.quantization.apply_quantization;
  std::error_code no_such_directory;
  if (quantizes && fs::equivalent(files.directory(), training.output_dir, no_such_directory)) {
    raise<ConfigError>(
        "--output_dir '{}' is where the model in f32 lies, which the int8 model would replace; "
        "choose another directory",
        training.output_dir);
  }
  if (!files.is_int8()) return;
  if (quantizes || arguments.training.do_train) {
    raise<ConfigError>(
        "'{}' holds an int8 model, which cannot be {}: its weights are rounded; give the f32 model "
        "that it was made from as --model_name_or_path (an int8 model can be evaluated and asked)",
        files.directory().native(), quantizes ? "quantized again" : "trained");
  }
}

}  // namespace tandem::job
