// Command-line options that all benches share.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/bench/flags.h"
#include "apps/command/commands.h"
#include "tandem/core/env.h"
#include "tandem/kernels/kernel_set.h"

namespace tandem::apps::bench {

class Rounds;  // measure.h

// The exit code of a bench whose results are wrong.
inline constexpr int kExitBug = 70;

struct Options {
  int threads = 0;      // 0: OMP_NUM_THREADS, else the available cores
  std::string kernels;  // empty: TANDEM_KERNELS
  std::string dtype;    // one of those of add_to(), or empty: what the bench does by default
  int rounds = 5;
  bool undisturbed = false;  // more rounds replace those in which others used the cores
  std::string only;          // substring of the names that run
  std::string against;       // another implementation to time alternately, or empty
  bool json = false;

  // The precision that the kernels must support: `dtype` may leave bf16 out.
  kernels::Precision precision() const;
  void add_to(Flags& flags, const std::vector<std::string>& dtypes = {"f32", "bf16"});
  // --undisturbed, for the benches whose calibrator is a multiply-add.
  void add_undisturbed_to(Flags& flags);
  // Rounds to make, and how many at most.
  Rounds all_rounds() const;
  // --only and --against, for the benches that time kernels one by one.
  void add_filters_to(Flags& flags);
};

// The batch that the shapes come from.
struct BatchOptions {
  std::size_t batch = 12;
  std::size_t seq = 384;

  void add_to(Flags& flags);
  std::size_t rows() const { return batch * seq; }
};

// A bench as the dispatcher sees it: its subcommand, and what runs when that was chosen. Returns
// the exit code.
struct Bench {
  CLI::App* app;
  std::function<int(const Environment&)> run;

  // `flags` fill `options`, which `run` gets.
  template <class O>
  static Bench of(const Flags& flags, std::shared_ptr<O> options,
                  int (*run)(const O&, const Environment&)) {
    return {&flags.app(),
            [options, run](const Environment& environment) { return run(*options, environment); }};
  }
};

// Runs the bench that the words name, one of those that were added to `app`. Returns the exit code;
// throws ConfigError for an unknown name.
int run_chosen(CLI::App& app, std::span<const Bench> benches, const Invocation& invocation);

// `tandem bench`, for users: one per file of this folder.
Bench add_peak(CLI::App& parent);
Bench add_step(CLI::App& parent);
Bench add_predict(CLI::App& parent);
Bench add_comm(CLI::App& parent);
Bench add_tune(CLI::App& parent);

// kernel_bench, for developers.
Bench add_gemm(CLI::App& parent);
Bench add_attention(CLI::App& parent);
Bench add_elementwise(CLI::App& parent);
Bench add_optimizer(CLI::App& parent);
Bench add_tokenize(CLI::App& parent);
Bench add_answers(CLI::App& parent);

}  // namespace tandem::apps::bench
