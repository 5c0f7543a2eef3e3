#include "apps/bench/options.h"

#include <CLI/CLI.hpp>

namespace tandem::apps::bench {

void Options::add_to(CLI::App& app, const std::vector<std::string>& dtypes) {
  app.add_option("--threads", threads,
                 "threads; not given: OMP_NUM_THREADS, else the available cores")
      ->check(CLI::Range(1, 4096));
  app.add_option("--kernels", kernels, "forces implementations, as TANDEM_KERNELS does");
  app.add_option("--dtype", dtype, "type of the operands")->check(CLI::IsMember(dtypes));
  app.add_option("--rounds", rounds, "how often each thing is timed")->check(CLI::Range(1, 100000));
  app.add_flag("--json", json, "print one JSON object instead of a table");
}

kernels::Precision Options::precision() const {
  return dtype == "f32" || dtype == "int8" ? kernels::Precision::kFloat32
                                           : kernels::Precision::kBfloat16;
}

void Options::add_filters_to(CLI::App& app) {
  app.add_option("--only", only, "only what has this text in its name");
  app.add_option("--against", against,
                 "also time another implementation, alternately, e.g. onednn");
}

void BatchOptions::add_to(CLI::App& app) {
  app.add_option("--batch", batch, "sequences of a batch")->check(CLI::Range(1, 65536));
  app.add_option("--seq", seq, "tokens of a sequence")->check(CLI::Range(1, 65536));
}

}  // namespace tandem::apps::bench
