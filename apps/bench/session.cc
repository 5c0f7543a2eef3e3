#include "apps/bench/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <map>

#include "tandem/core/error.h"
#include "tandem/kernels/tuned_tiles.h"

namespace tandem::apps::bench {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kStreamElements = std::size_t{1} << 24;  // 64 MiB per array

int number_of_threads(const Options& options, const Environment& environment) {
  if (options.threads > 0) return options.threads;
  const long asked = environment.get_int("OMP_NUM_THREADS", 0, 4096).value_or(0);
  return asked > 0 ? static_cast<int>(asked) : available_cores();
}

ordered_json describe(const Machine& machine, int rounds) {
  return {{"cpu", kernels::CpuFeatures::detect().describe()},
          {"threads", machine.context().threads.num_threads()},
          {"kernels", machine.context().kernels.signature()},
          {"rounds", rounds}};
}

// write() reports a closed pipe, see LineOutput.
int standard_output() {
  std::signal(SIGPIPE, SIG_IGN);
  return STDOUT_FILENO;
}

std::string percent(const Statistics& share) {
  return fmt::format("{:5.1f} % ({:.1f} – {:.1f})", 100 * share.median, 100 * share.min,
                     100 * share.max);
}

}  // namespace

std::string_view to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "f32";
    case Dtype::kBf16:
      return "bf16";
    case Dtype::kInt8:
      return "int8";
  }
  return "";
}

Machine::Machine(ThreadPool& threads, std::string_view overrides, kernels::Precision precision)
    : kernels_(kernels::select_kernels(kernels::CpuFeatures::detect(), overrides, precision)),
      scratch_(threads.num_threads()),
      context_{threads, kernels_, scratch_} {}

Machine::Machine(ThreadPool& threads, std::string_view overrides, kernels::Precision precision,
                 const Environment& environment)
    : Machine(threads, overrides, precision) {
  tuned_tiles_ = kernels::load_tuned_tiles(environment, kernels_);
}

Session::Session(std::string_view bench, const Options& options, const Environment& environment)
    : options_(options),
      threads_(number_of_threads(options, environment)),
      overrides_(options.kernels.empty() ? environment.get("TANDEM_KERNELS").value_or("")
                                         : options.kernels),
      machine_(threads_, overrides_, options.precision(), environment),
      reference_(threads_, "reference"),
      output_(standard_output()),
      report_(output_, options.json, bench, describe(machine_, options.rounds)) {
  if (!machine_.tuned_tiles().empty()) report_.line(machine_.tuned_tiles());
}

std::vector<Dtype> Session::dtypes() const {
  if (options_.dtype == "f32") return {Dtype::kF32};
  if (options_.dtype == "bf16") return {Dtype::kBf16};
  if (options_.dtype == "int8") return {Dtype::kInt8};
  return {Dtype::kF32, Dtype::kBf16};
}

bool Session::wants(std::string_view name) const {
  return name.find(options_.only) != std::string_view::npos;
}

Calibration Session::peak_flops(Dtype dtype) {
  const std::map<Dtype, kernels::PeakType> types = {{Dtype::kF32, kernels::PeakType::kF32},
                                                    {Dtype::kBf16, kernels::PeakType::kBf16},
                                                    {Dtype::kInt8, kernels::PeakType::kInt8}};
  const kernels::PeakFlops peak = kernels::measure_peak_flops(context(), types.at(dtype));
  double& best = best_peaks_[dtype];
  best = std::max(best, peak.best);
  return {.rate = peak.best, .undisturbed = peak.mean >= kUndisturbed * best};
}

Streams& Session::streams() {
  if (!streams_) streams_.emplace(context(), kStreamElements);
  return *streams_;
}

const Machine& Session::other_machine(const std::string& operation) {
  if (other_operation_ != operation) {
    other_.emplace(threads_,
                   fmt::format("{}{}{}={}", overrides_, overrides_.empty() ? "" : ",", operation,
                               options_.against),
                   options_.precision());
    other_operation_ = operation;
  }
  return *other_;
}

void Session::time(const Case& one) {
  if (!wants(one.name)) return;
  std::vector<const kernels::Context*> contexts = {&context()};
  if (!options_.against.empty()) contexts.push_back(&other_machine(one.operation).context());
  double error = 0;
  std::vector<std::function<void()>> works;
  for (const kernels::Context* fast : contexts) {
    // Not std::max: a NaN must stay.
    const double found = one.error(*fast, reference());
    if (!(found <= error)) error = found;
    works.push_back([&one, fast] { one.run(*fast); });
  }
  std::vector<Samples> samples;
  if (error <= 1) {
    const auto calibrate = [&]() -> Calibration {
      if (one.calibrate) return {.rate = one.calibrate()};
      if (one.unit == Unit::kFlops) return peak_flops(one.dtype);
      return {.rate = streams().copy()};
    };
    Rounds rounds = options_.all_rounds();
    watch([&] { samples = measure(rounds, calibrate, works); });
    note(rounds);
  } else {
    found_wrong();
  }
  report_times(one, error, samples);
}

void Session::report_times(const Case& one, double error, const std::vector<Samples>& samples) {
  const std::string unit = one.unit == Unit::kFlops ? "GFLOP/s" : "GB/s";
  ordered_json result = {{"name", one.name},
                         {"dtype", to_string(one.dtype)},
                         {"verified", error <= 1},
                         {"error", error}};
  std::string line = fmt::format("{:<44} {:<4} ", one.name, to_string(one.dtype));
  if (samples.empty()) {
    line += fmt::format("WRONG: {:.3g} times the error that rounding explains", error);
  } else {
    const Samples& own = samples.front();
    const Statistics seconds = statistics(own.seconds);
    const Statistics rate = own.rates(one.work * 1e-9);
    const Statistics share = own.shares(one.work);
    result["seconds"] = to_json(seconds);
    result["unit"] = unit;
    result["rate"] = to_json(rate);
    result["peak"] = statistics(own.peaks).median * 1e-9;
    result["share"] = to_json(share);
    line += fmt::format("{:10.3f} ms ({:.3f} – {:.3f}) {:9.1f} {:<7} {}", 1e3 * seconds.median,
                        1e3 * seconds.min, 1e3 * seconds.max, rate.median, unit, percent(share));
  }
  if (samples.size() > 1) {
    std::vector<double> ratios(samples[0].seconds.size());
    for (std::size_t i = 0; i < ratios.size(); ++i) {
      ratios[i] = samples[1].seconds[i] / samples[0].seconds[i];
    }
    const Statistics ratio = statistics(ratios);
    result["against"] = {{"implementation", options_.against},
                         {"seconds", to_json(statistics(samples[1].seconds))},
                         {"ratio", to_json(ratio)}};
    line += fmt::format("  {:.2f} times as fast as {} ({:.2f} – {:.2f})", ratio.median,
                        options_.against, ratio.min, ratio.max);
  }
  report_.line(line);
  report_.add(std::move(result));
}

void Session::watch(FunctionRef<void()> measurements) {
  const std::clock_t cpu = std::clock();  // processor time of all threads
  watched_seconds_ += seconds_of(measurements);
  cpu_seconds_ += static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
}

double Session::share_of_cores() const {
  return watched_seconds_ == 0 ? 1 : cpu_seconds_ / (watched_seconds_ * threads_.num_threads());
}

// Threads that wait for a core are slow at moments of their own, which no calibrator can take out.
void Session::report_cores() {
  if (watched_seconds_ == 0) return;
  const double share = share_of_cores();
  report_.set("share_of_cores", share);
  if (share > kQuiet) return;
  report_.line(
      fmt::format("the threads had {:.0f} % of their cores' time: other processes run "
                  "here, take figures on a quiet machine",
                  100 * share));
}

void Session::note(const Rounds& rounds) {
  rounds_.undisturbed += rounds.undisturbed();
  rounds_.made += rounds.made();
  rounds_.enough = rounds_.enough && rounds.enough();
}

void Session::report_rounds() {
  if (!options_.undisturbed) return;
  report_.set("undisturbed",
              {{"rounds", rounds_.undisturbed}, {"of", rounds_.made}, {"enough", rounds_.enough}});
  report_.line(fmt::format(
      "{} of {} rounds were undisturbed{}", rounds_.undisturbed, rounds_.made,
      rounds_.enough ? "; only these count" : ": too few, take figures when the machine is quiet"));
}

int Session::finish() {
  report_cores();
  report_rounds();
  report_.finish();
  return wrong_ ? kExitBug : 0;
}

}  // namespace tandem::apps::bench
