// `kernel_bench gemm`: the three products of every linear layer of a model at the rows of a batch;
// with --dtype int8 the forward product alone, in every type.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "apps/bench/int8_product.h"
#include "apps/bench/products.h"
#include "apps/bench/session.h"
#include "tandem/core/error.h"

namespace tandem::apps::bench {
namespace {

struct GemmOptions {
  Options common;
  BatchOptions batch;
  std::string model;
};

// The name of a product of a layer.
std::string product_name(const std::string& model, const Layer& layer, std::string_view part) {
  return fmt::format("{} {} {}x{} {}", model, layer.name, layer.N, layer.K, part);
}

template <class T>
Case case_of(const Products<T>& products, std::string name) {
  Case one;
  one.name = std::move(name);
  one.operation = "gemm";
  one.dtype = kDtypeOf<T>;
  one.work = products.flops();
  return one;
}

template <class T>
void time_forward(Session& session, const std::string& name, const Products<T>& products) {
  Case one = case_of(products, name);
  one.run = [&](const Context& ctx) { products.forward(ctx); };
  one.error = [&](const Context& fast, const Context& reference) {
    return products.forward_error(fast, reference);
  };
  session.time(one);
}

template <class T>
void time_layer(Session& session, const std::string& model, std::size_t rows, const Layer& layer) {
  const std::string forward = product_name(model, layer, "forward");
  const std::string input = product_name(model, layer, "dX");
  const std::string weight = product_name(model, layer, "dW");
  if (!session.wants(forward) && !session.wants(input) && !session.wants(weight)) return;
  const Products<T> products(session.threads(), rows, layer);
  time_forward(session, forward, products);

  Case one = case_of(products, input);
  one.run = [&](const Context& ctx) { products.backward_input(ctx); };
  one.error = [&](const Context& fast, const Context& reference) {
    return products.backward_input_error(fast, reference);
  };
  session.time(one);

  one = case_of(products, weight);
  one.run = [&](const Context& ctx) { products.backward_weight(ctx); };
  one.error = [&](const Context& fast, const Context& reference) {
    return products.backward_weight_error(fast, reference);
  };
  session.time(one);
}

void time_int8(Session& session, const std::string& name, const Int8Product& product) {
  Case one;
  one.name = name;
  one.operation = "int8";
  one.dtype = Dtype::kInt8;
  one.work = product.flops();
  one.run = [&](const Context& ctx) { product.forward(ctx); };
  one.error = [&](const Context& fast, const Context& reference) {
    return product.error(fast, reference);
  };
  session.time(one);
}

// The forward product of one layer in all types, one after the other.
void time_layer_int8(Session& session, const std::string& model, std::size_t rows,
                     const Layer& layer) {
  const std::string forward = product_name(model, layer, "forward");
  const std::string dynamic = product_name(model, layer, "forward, dynamic");
  if (session.wants(forward)) {
    time_forward(session, forward, Products<float>(session.threads(), rows, layer));
    time_forward(session, forward, Products<bfloat16>(session.threads(), rows, layer));
  }
  if (!session.wants(forward) && !session.wants(dynamic)) return;
  time_int8(session, forward, Int8Product(session.context(), rows, layer, /*dynamic=*/false));
  time_int8(session, dynamic, Int8Product(session.context(), rows, layer, /*dynamic=*/true));
}

void time_layer(Session& session, Dtype dtype, const std::string& model, std::size_t rows,
                const Layer& layer) {
  switch (dtype) {
    case Dtype::kF32:
      return time_layer<float>(session, model, rows, layer);
    case Dtype::kBf16:
      return time_layer<bfloat16>(session, model, rows, layer);
    case Dtype::kInt8:
      return time_layer_int8(session, model, rows, layer);
  }
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
  // DistilBERT's products are BERT-base's.
  const std::vector<std::string> names =
      options.model.empty() ? std::vector<std::string>{"minilm", "bert-base", "bert-large"}
                            : std::vector<std::string>{options.model};
  for (const Dtype dtype : session.dtypes()) {
    for (const std::string& name : names) {
      for (const Layer& layer : layers_of(named_model(name))) {
        time_layer(session, dtype, name, options.batch.rows(), layer);
      }
    }
  }
  summarize(session.report());
  return session.finish();
}

}  // namespace

Bench add_gemm(CLI::App& parent) {
  Flags flags(parent, "gemm", "the matrix products of linear layers");
  auto options = std::make_shared<GemmOptions>();
  options->common.add_to(flags, {"f32", "bf16", "int8"});
  options->common.add_undisturbed_to(flags);
  options->common.add_filters_to(flags);
  options->batch.add_to(flags);
  flags.choice("--model", options->model, "whose shapes; not given: those of all models",
               model_names());
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
