// `tandem bench gemm`: the three products of every linear layer of a model at the rows of a batch.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "apps/bench/products.h"
#include "apps/bench/session.h"
#include "apps/bench/tune.h"

namespace tandem::apps::bench {
namespace {

struct GemmOptions {
  Options common;
  BatchOptions batch;
  std::string model;
  bool tune = false;
};

template <class T>
void time_layer(Session& session, const std::string& model, std::size_t rows, const Layer& layer) {
  const auto name = [&](std::string_view part) {
    return fmt::format("{} {} {}x{} {}", model, layer.name, layer.N, layer.K, part);
  };
  const std::string names[] = {name("forward"), name("dX"), name("dW")};
  if (!session.wants(names[0]) && !session.wants(names[1]) && !session.wants(names[2])) return;
  const Products<T> products(session.threads(), rows, layer);
  Case one;
  one.operation = "gemm";
  one.dtype = kDtypeOf<T>;
  one.work = products.flops();

  one.name = names[0];
  one.run = [&](const Context& ctx) { products.forward(ctx); };
  one.error = [&](const Context& fast, const Context& reference) {
    return products.forward_error(fast, reference);
  };
  session.time(one);

  one.name = names[1];
  one.run = [&](const Context& ctx) { products.backward_input(ctx); };
  one.error = [&](const Context& fast, const Context& reference) {
    return products.backward_input_error(fast, reference);
  };
  session.time(one);

  one.name = names[2];
  one.run = [&](const Context& ctx) { products.backward_weight(ctx); };
  one.error = [&](const Context& fast, const Context& reference) {
    return products.backward_weight_error(fast, reference);
  };
  session.time(one);
}

// Mean and minimum of the shares, per type.
void summarize(Report& report) {
  std::map<std::string, std::vector<double>> shares;
  for (const auto& result : report.results()) {
    if (result.contains("share")) {
      shares[result["dtype"].get<std::string>()].push_back(result["share"]["median"].get<double>());
    }
  }
  auto summary = nlohmann::ordered_json::array();
  for (const auto& [dtype, values] : shares) {
    double sum = 0;
    for (const double value : values) sum += value;
    const double mean = sum / static_cast<double>(values.size());
    const double min = statistics(values).min;
    report.line(fmt::format("{}: {} products, of the peak {:.1f} % on average, {:.1f} % at least",
                            dtype, values.size(), 100 * mean, 100 * min));
    summary.push_back({{"dtype", dtype}, {"mean_share", mean}, {"min_share", min}});
  }
  report.set("summary", std::move(summary));
}

int run(const GemmOptions& options, const Environment& environment) {
  Session session("gemm", options.common, environment);
  if (options.tune) {
    return tune_products(session, options.model.empty() ? "bert-base" : options.model,
                         options.batch.rows(), environment);
  }
  // DistilBERT's products are BERT-base's.
  const std::vector<std::string> names =
      options.model.empty() ? std::vector<std::string>{"minilm", "bert-base", "bert-large"}
                            : std::vector<std::string>{options.model};
  for (const Dtype dtype : session.dtypes()) {
    for (const std::string& name : names) {
      for (const Layer& layer : layers_of(named_model(name))) {
        if (dtype == Dtype::kF32) {
          time_layer<float>(session, name, options.batch.rows(), layer);
        } else {
          time_layer<bfloat16>(session, name, options.batch.rows(), layer);
        }
      }
    }
  }
  summarize(session.report());
  return session.finish();
}

}  // namespace

Bench add_gemm(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("gemm", "the matrix products of linear layers");
  auto options = std::make_shared<GemmOptions>();
  options->common.add_to(*app);
  options->common.add_filters_to(*app);
  options->batch.add_to(*app);
  app->add_option("--model", options->model, "whose shapes; not given: those of all models")
      ->check(CLI::IsMember(model_names()));
  app->add_flag(
      "--tune", options->tune,
      "times tiles of other sizes on the shapes of --model (else bert-base) and writes the "
      "best ones to tandem's cache, where jobs on this kind of CPU find them; no bit of a "
      "result depends on them");
  return {app, [options](const Environment& environment) { return run(*options, environment); }};
}

}  // namespace tandem::apps::bench
