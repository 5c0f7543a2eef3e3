// One run of a bench: threads, kernels, calibrators and the report, and the procedure for kernels:
// verify against the reference, then time together with the calibrator.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench/measure.h"
#include "apps/bench/options.h"
#include "apps/bench/report.h"
#include "apps/command/line_output.h"
#include "tandem/kernels/context.h"

namespace tandem::apps::bench {

enum class Dtype { kF32, kBf16, kInt8 };
std::string_view to_string(Dtype dtype);
template <class T>
constexpr Dtype kDtypeOf = std::is_same_v<T, float> ? Dtype::kF32 : Dtype::kBf16;

// A pool, a choice of kernels and scratch memory behind one Context.
class Machine {
 public:
  Machine(ThreadPool& threads, std::string_view overrides,
          kernels::Precision precision = kernels::Precision::kBfloat16);
  // With the tiles that were tuned for this CPU, as jobs run; see tuned_tiles() for the line about
  // it.
  Machine(ThreadPool& threads, std::string_view overrides, kernels::Precision precision,
          const Environment& environment);
  const kernels::Context& context() const { return context_; }
  const std::string& tuned_tiles() const { return tuned_tiles_; }

 private:
  kernels::KernelSet kernels_;
  std::string tuned_tiles_;
  kernels::Scratch scratch_;
  kernels::Context context_;
};

// FLOPs are compared with the best multiply-add on registers, bytes with a copy through memory.
enum class Unit { kFlops, kBytes };

// Something of the kernels library to time.
struct Case {
  std::string name;
  std::string operation;  // the table whose row --against exchanges
  Dtype dtype = Dtype::kF32;
  Unit unit = Unit::kFlops;
  double work = 0;  // FLOPs or bytes of one execution
  std::function<void(const kernels::Context&)> run;
  // The largest error of `fast` against `reference`, as a share of what rounding explains: > 1 is
  // wrong.
  std::function<double(const kernels::Context& fast, const kernels::Context& reference)> error;
  std::function<double()> calibrate;  // null: the unit's own
};

class Session {
 public:
  Session(std::string_view bench, const Options& options, const Environment& environment);

  const Options& options() const { return options_; }
  ThreadPool& threads() { return threads_; }
  const kernels::Context& context() const { return machine_.context(); }
  const kernels::Context& reference() const { return reference_.context(); }
  // f32 and bf16 unless --dtype names one.
  std::vector<Dtype> dtypes() const;
  // --only.
  bool wants(std::string_view name) const;

  // The rate of the best multiply-add. It is disturbed if the mean is far below the best of the
  // session.
  Calibration peak_flops(Dtype dtype);
  Streams& streams();  // made at the first call

  // Notes how many of the rounds were undisturbed; finish() reports it.
  void note(const Rounds& rounds);
  // Runs `measurements`, and notes how much of the cores the threads had meanwhile.
  void watch(FunctionRef<void()> measurements);
  // Verifies and times one case, together with those of --against; reports it.
  void time(const Case& one);
  Report& report() { return report_; }
  // Prints what is left. Returns the exit code: 70 when something was wrong.
  int finish();
  void found_wrong() { wrong_ = true; }
  // With a line that names the fault: "WRONG: …".
  void found_wrong(std::string_view what) {
    wrong_ = true;
    report_.line(fmt::format("WRONG: {}", what));
  }
  bool wrong() const { return wrong_; }
  // Whether the threads had nearly all of their cores' time so far.
  bool quiet() const { return share_of_cores() > kQuiet; }

 private:
  const Machine& other_machine(const std::string& operation);
  static constexpr double kQuiet = 0.9;
  static constexpr double kUndisturbed = 0.85;
  double share_of_cores() const;
  void report_rounds();
  void report_cores();
  void report_times(const Case& one, double error, const std::vector<Samples>& samples);

  Options options_;
  ThreadPool threads_;
  std::string overrides_;
  Machine machine_;
  Machine reference_;
  std::string other_operation_;
  std::optional<Machine> other_;
  std::optional<Streams> streams_;
  LineOutput output_;
  Report report_;
  bool wrong_ = false;
  double watched_seconds_ = 0;
  double cpu_seconds_ = 0;
  std::map<Dtype, double> best_peaks_;
  struct {
    int undisturbed = 0;
    int made = 0;
    bool enough = true;
  } rounds_;
};

}  // namespace tandem::apps::bench
