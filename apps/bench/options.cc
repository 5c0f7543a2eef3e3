#include "apps/bench/options.h"

#include "apps/bench/measure.h"

namespace tandem::apps::bench {

void Options::add_to(Flags& flags, const std::vector<std::string>& dtypes) {
  flags.number("--threads", threads,
               "threads; not given: OMP_NUM_THREADS, else the available cores", 1, 4096);
  flags.text("--kernels", kernels, "forces implementations, as TANDEM_KERNELS does");
  flags.choice("--dtype", dtype, "type of the operands", dtypes);
  flags.number("--rounds", rounds, "how often each thing is timed", 1, 100000);
  flags.boolean("--json", json, "print one JSON object instead of a table");
}

void Options::add_undisturbed_to(Flags& flags) {
  flags.boolean("--undisturbed", undisturbed,
                "up to four times as many rounds, without those in which others used the cores");
}

Rounds Options::all_rounds() const { return {rounds, undisturbed ? 4 * rounds : rounds}; }

kernels::Precision Options::precision() const {
  return dtype == "f32" || dtype == "int8" ? kernels::Precision::kFloat32
                                           : kernels::Precision::kBfloat16;
}

void Options::add_filters_to(Flags& flags) {
  flags.text("--only", only, "only what has this text in its name");
  flags.text("--against", against, "also time another implementation, alternately, e.g. onednn");
}

void BatchOptions::add_to(Flags& flags) {
  flags.number("--batch", batch, "sequences of a batch", 1, 65536);
  flags.number("--seq", seq, "tokens of a sequence", 1, 65536);
}

}  // namespace tandem::apps::bench
