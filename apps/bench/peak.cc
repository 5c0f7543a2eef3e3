// `tandem bench peak`: what the machine can do at most. All other benches are shares of this.
#include "tandem/kernels/peak.h"

#include <fmt/format.h>

#include <memory>

#include "apps/bench/session.h"
#include "tandem/kernels/kernel_tables.h"

namespace tandem::apps::bench {
namespace {

struct PeakOptions {
  Options common;
  std::size_t megabytes = 1024;
};

using Loop = std::function<double(std::size_t iterations)>;  // returns the FLOPs done

// FLOP/s of a loop on all threads of the pool, best of some short passes: the first ones wake the
// threads and the vector units.
double flops_per_second(ThreadPool& threads, const Loop& loop) {
  constexpr double kChunkSeconds = 40e-6;
  constexpr int kPasses = 20;
  std::size_t iterations = 1;
  while (seconds_of([&] { loop(iterations); }) < kChunkSeconds) iterations *= 2;
  // Many chunks a thread, so that dealing the last one is small compared with the work.
  const std::size_t chunks = static_cast<std::size_t>(threads.num_threads()) * 32;
  std::vector<double> flops(chunks);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double seconds = seconds_of([&] {
      threads.parallel_for(chunks,
                           [&](std::size_t chunk, int) { flops[chunk] = loop(iterations); });
    });
    double total = 0;
    for (const double f : flops) total += f;
    best = std::max(best, total / seconds);
  }
  return best;
}

void report(Session& session, std::string_view name, std::string_view unit, int threads,
            const std::vector<double>& rates) {
  const Statistics rate = statistics(rates);
  session.report().line(fmt::format("{:<36} {:>3} {:10.1f} {} ({:.1f} – {:.1f})", name, threads,
                                    rate.median, unit, rate.min, rate.max));
  session.report().add({{"name", fmt::format("{} {}", name, threads == 1 ? "one core" : "all")},
                        {"threads", threads},
                        {"unit", unit},
                        {"rate", to_json(rate)}});
}

// Alternates between one core and all cores.
void time_loop(Session& session, ThreadPool& one, const std::string& name, const Loop& loop) {
  const bool several = session.threads().num_threads() > 1;
  std::vector<double> single;
  std::vector<double> all;
  for (int round = 0; round < session.options().rounds; ++round) {
    single.push_back(flops_per_second(one, loop) * 1e-9);
    if (several) all.push_back(flops_per_second(session.threads(), loop) * 1e-9);
  }
  report(session, name, "GFLOP/s", 1, single);
  if (several) report(session, name, "GFLOP/s", session.threads().num_threads(), all);
}

void time_families(Session& session, ThreadPool& one) {
  const Buffer block(kernels::kL1Floats * sizeof(float));
  const float* l1 = block.as<float>().data();
  std::ranges::fill(block.as<float>(), 1.0f);
  const kernels::GemmKernels& chosen = *session.context().kernels.gemm;
  bool chosen_is_timed = false;
  for (const kernels::PeakFamily& family : kernels::peak_families(kernels::CpuFeatures::detect())) {
    const std::string name = fmt::format("{} {}", family.name, family.dtype);
    if (family.registers == chosen.peak_bf16) chosen_is_timed = true;
    time_loop(session, one, name + " registers", family.registers);
    if (family.l1 == nullptr) continue;
    time_loop(session, one, name + " L1",
              [&](std::size_t iterations) { return family.l1(iterations, l1); });
  }
  // Instructions that only the kernels know how to set up, as AMX.
  if (!chosen_is_timed) {
    time_loop(
        session, one,
        fmt::format("gemm={} bf16 registers", session.context().kernels.implementation("gemm")),
        chosen.peak_bf16);
  }
}

void time_streams(Session& session, ThreadPool& pool, std::size_t elements) {
  kernels::Context context = session.context();
  const kernels::Context on_pool{pool, context.kernels, context.scratch};
  Streams streams(on_pool, elements);
  const std::pair<const char*, std::function<double()>> passes[] = {
      {"memory read", [&] { return streams.read(); }},
      {"memory copy", [&] { return streams.copy(); }},
      {"memory AdamW's 28 B", [&] { return streams.update(false); }},
      {"memory AdamW's 30 B", [&] { return streams.update(true); }}};
  for (const auto& pass : passes) {
    std::vector<double> rates;
    for (int round = 0; round < session.options().rounds; ++round) {
      rates.push_back(pass.second() * 1e-9);
    }
    report(session, pass.first, "GB/s", pool.num_threads(), rates);
  }
}

int run(const PeakOptions& options, const Environment& environment) {
  Session session("peak", options.common, environment);
  ThreadPool one(1);
  session.report().line(fmt::format("{:<36} {:>3}", "", "threads"));
  time_families(session, one);
  const std::size_t elements = options.megabytes * (1 << 20) / (4 * sizeof(float));
  time_streams(session, one, elements);
  if (session.threads().num_threads() > 1) time_streams(session, session.threads(), elements);
  return session.finish();
}

}  // namespace

Bench add_peak(CLI::App& parent) {
  Flags flags(parent, "peak",
              "multiply-adds on registers and from the L1 cache, and streams through memory");
  auto options = std::make_shared<PeakOptions>();
  options->common.add_to(flags);
  flags.number("--megabytes", options->megabytes, "memory that the streams pass through", 4,
               1 << 20);
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
