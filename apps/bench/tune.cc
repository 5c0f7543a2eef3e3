// `kernel_bench tune`: tiles of products for this machine. Tiles of several sizes are timed
// alternately, per type and kind of product. Sizes that are clearly faster than the kernel's own go
// to the cache of kernels/tuned_tiles.h. Results with other bits than the kernel's own tiles give
// are an error.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include "apps/bench/options.h"
#include "apps/bench/products.h"
#include "apps/bench/session.h"
#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/tuned_tiles.h"

namespace tandem::apps::bench {
namespace {

using kernels::GemmTile;
using kernels::GemmTiles;

// The first one, nothing, stands for the kernel's own.
constexpr GemmTile kCandidates[] = {{},         {48, 192},  {48, 384},  {48, 768},  {96, 192},
                                    {96, 384},  {96, 768},  {192, 192}, {192, 384}, {192, 768},
                                    {384, 192}, {384, 384}, {384, 768}};
// The least average gain of a candidate: a smaller one may be chance.
constexpr double kClearlyFaster = 1.01;

// Forward and dX, whose weights are packed ahead, or dW.
enum class Kind { kAhead, kStaged };

// The kernels of a session with tiles of their own. One scratch serves all.
struct Candidate {
  Candidate(const Context& base, const GemmTile& tile, Kind kind)
      : kernels(base.kernels), context{base.threads, kernels, base.scratch} {
    GemmTiles& f32 = kernels.gemm_tiles_f32;
    GemmTiles& bf16 = kernels.gemm_tiles_bf16;
    (kind == Kind::kAhead ? f32.b_ahead : f32.b_staged) = tile;
    (kind == Kind::kAhead ? bf16.b_ahead : bf16.b_staged) = tile;
  }
  Candidate(const Candidate&) = delete;
  kernels::KernelSet kernels;
  Context context;
};

template <class T>
void run(const Products<T>& products, Kind kind, const Context& context) {
  if (kind == Kind::kStaged) return products.backward_weight(context);
  products.forward(context);
  products.backward_input(context);
}

// The logarithms of how many times as fast every tile is as the first one, added to `gains`.
template <class T>
void time_layer(Session& session, const Products<T>& products, Kind kind,
                std::span<const GemmTile> tiles, std::vector<double>& gains) {
  std::vector<std::unique_ptr<Candidate>> candidates;
  std::vector<std::function<void()>> works;
  std::vector<std::byte> want;
  for (const GemmTile& tile : tiles) {
    candidates.push_back(std::make_unique<Candidate>(session.context(), tile, kind));
    const Context& context = candidates.back()->context;
    run(products, kind, context);
    if (want.empty()) want = products.results();
    if (products.results() != want) {
      session.found_wrong(fmt::format("tiles of {} x {} give other bits", tile.rows, tile.columns));
    }
    works.push_back([&products, kind, &context] { run(products, kind, context); });
  }
  std::vector<Samples> samples;
  session.watch([&] { samples = measure(session.options().rounds, works); });
  const double own = statistics(samples[0].seconds).median;
  for (std::size_t i = 0; i < gains.size(); ++i) {
    gains[i] += std::log(own / statistics(samples[i].seconds).median);
  }
}

void report_candidate(Session& session, Dtype dtype, Kind kind, const GemmTile& tile,
                      double times) {
  const std::string name =
      fmt::format("{} tiles of at most {} x {}", kind == Kind::kAhead ? "forward and dX," : "dW,",
                  tile.rows, tile.columns);
  session.report().line(
      fmt::format("{:<44} {:<4} {:.3f} times as fast", name, to_string(dtype), times));
  session.report().add({{"name", name}, {"dtype", to_string(dtype)}, {"ratio", times}});
}

// How many times as fast each tile is as the first one, on average over the layers.
template <class T>
std::vector<double> times_as_fast(Session& session, const models::ModelConfig& config,
                                  std::size_t rows, Kind kind, std::span<const GemmTile> tiles) {
  std::vector<double> gains(tiles.size());
  const std::vector<Layer> layers = layers_of(config);
  for (const Layer& layer : layers) {
    const Products<T> products(session.threads(), rows, layer);
    time_layer(session, products, kind, tiles, gains);
  }
  for (double& gain : gains) gain = std::exp(gain / static_cast<double>(layers.size()));
  return gains;
}

// The best of many measurements is partly luck: it must win once more, alone against the kernel's
// own.
template <class T>
GemmTile best_tile(Session& session, const models::ModelConfig& config, std::size_t rows,
                   Kind kind) {
  const std::vector<double> times = times_as_fast<T>(session, config, rows, kind, kCandidates);
  for (std::size_t i = 1; i < times.size(); ++i) {
    report_candidate(session, kDtypeOf<T>, kind, kCandidates[i], times[i]);
  }
  const auto best =
      static_cast<std::size_t>(std::max_element(times.begin(), times.end()) - times.begin());
  if (times[best] < kClearlyFaster) return {};
  const GemmTile pair[] = {{}, kCandidates[best]};
  const double again = times_as_fast<T>(session, config, rows, kind, pair)[1];
  session.report().line(fmt::format("once more, {} x {} alone: {:.3f} times as fast",
                                    kCandidates[best].rows, kCandidates[best].columns, again));
  return again >= kClearlyFaster ? kCandidates[best] : GemmTile{};
}

template <class T>
GemmTiles best_tiles(Session& session, const models::ModelConfig& config, std::size_t rows) {
  return {.b_ahead = best_tile<T>(session, config, rows, Kind::kAhead),
          .b_staged = best_tile<T>(session, config, rows, Kind::kStaged)};
}

struct TuneOptions {
  Options common;
  BatchOptions batch;
  std::string model = "bert-base";
};

// Returns the exit code: 70 wrong bits, 1 a busy machine, on which nothing is written.
int run(const TuneOptions& options, const Environment& environment) {
  Session session("tune", options.common, environment);
  if (session.context().kernels.gemm->packed == nullptr) {
    raise<ConfigError>("gemm={} has no tiles to tune",
                       session.context().kernels.implementation("gemm"));
  }
  const std::optional<std::filesystem::path> file = kernels::tuned_tiles_file(environment);
  if (!file) {
    raise<ConfigError>("there is no place for tuned tiles: set XDG_CACHE_HOME or HOME");
  }
  const models::ModelConfig config = named_model(options.model);
  const std::size_t rows = options.batch.rows();
  kernels::KernelSet tuned = session.context().kernels;
  for (const Dtype dtype : session.dtypes()) {
    if (dtype == Dtype::kF32) {
      tuned.gemm_tiles_f32 = best_tiles<float>(session, config, rows);
    } else {
      tuned.gemm_tiles_bf16 = best_tiles<bfloat16>(session, config, rows);
    }
  }
  constexpr int kExitBusy = 1;
  const bool use = session.quiet() && !session.wrong();
  if (use) kernels::save_tuned_tiles(*file, tuned);
  session.report().line(use ? fmt::format("written to {}", file->string())
                            : "nothing is written: these figures would mislead");
  const int code = session.finish();
  return code != 0 || use ? code : kExitBusy;
}

}  // namespace

Bench add_tune(CLI::App& parent) {
  Flags flags(parent, "tune", "tiles of products for this kind of CPU");
  auto options = std::make_shared<TuneOptions>();
  options->common.add_to(flags);
  options->batch.add_to(flags);
  flags.choice("--model", options->model, "whose shapes", model_names());
  flags.footer(
      "Times tiles of other sizes and writes the best ones to tandem's cache, where jobs on this "
      "kind of CPU find them. No bit of a result depends on them.");
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
