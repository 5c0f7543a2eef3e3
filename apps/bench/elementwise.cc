// `tandem bench elementwise`: what runs between the products of a layer, at the shapes of a model.
// Bytes are those that must be read and written once; the share is of a copy through memory.
#include <fmt/format.h>

#include <memory>
#include <numeric>

#include "apps/bench/data.h"
#include "apps/bench/session.h"
#include "tandem/kernels/activation.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/kernels/embedding.h"
#include "tandem/kernels/layer_norm.h"
#include "tandem/kernels/reduce.h"

namespace tandem::apps::bench {
namespace {

using kernels::Context;

struct ElementwiseOptions {
  Options common;
  BatchOptions batch;
  std::string model = "bert-base";
};

// What all of them need.
struct Shapes {
  models::ModelConfig config;
  Batch batch;
  std::size_t H, I, R;
};

constexpr kernels::Dropout kDropout = {.p = 0.1f, .seed = 1, .step = 2, .site = 1};

template <class T>
Case make_case(std::string name, std::string operation, double bytes) {
  Case one;
  one.name = std::move(name);
  one.operation = std::move(operation);
  one.dtype = kDtypeOf<T>;
  one.unit = Unit::kBytes;
  one.work = bytes;
  return one;
}

// Runs the case with both versions and compares the arrays that it writes.
template <class... Outputs>
auto error_of(const Case& one, double bound, const Outputs&... outputs) {
  return [&one, bound, &outputs...](const Context& fast, const Context& reference) {
    one.run(fast);
    const auto got = std::make_tuple(std::vector(outputs.span().begin(), outputs.span().end())...);
    one.run(reference);
    return std::apply(
        [&](const auto&... copies) {
          return std::max(
              {worst_error(std::span(copies.data(), copies.size()), outputs.span(), bound)...});
        },
        got);
  };
}

template <class T>
void time_activation(Session& session, const Shapes& s, kernels::Activation activation,
                     std::string_view name) {
  const std::size_t count = s.R * s.I;
  const auto x = Array<T>::random(session.threads(), count, 1);
  const auto grad_y = Array<T>::random(session.threads(), count, 2);
  const auto y = Array<T>::random(session.threads(), count, 3);
  Case forward = make_case<T>(fmt::format("{} forward", name), "activation",
                              2.0 * sizeof(T) * static_cast<double>(count));
  forward.run = [&](const Context& ctx) {
    kernels::activation_forward(ctx, activation, count, x.data(), y.data());
  };
  forward.error = error_of(forward, 16 * kFloatEpsilon, y);
  session.time(forward);
  Case backward = make_case<T>(fmt::format("{} backward", name), "activation",
                               3.0 * sizeof(T) * static_cast<double>(count));
  backward.run = [&](const Context& ctx) {
    kernels::activation_backward(ctx, activation, count, x.data(), grad_y.data(), y.data());
  };
  backward.error = error_of(backward, 32 * kFloatEpsilon, y);
  session.time(backward);
}

template <class T>
void time_layer_norm(Session& session, const Shapes& s) {
  ThreadPool& threads = session.threads();
  const std::size_t count = s.R * s.H;
  const auto x = Array<T>::random(threads, count, 1);
  const auto residual = Array<float>::random(threads, count, 2);
  const auto gamma = Array<float>::random(threads, s.H, 3);
  const auto beta = Array<float>::random(threads, s.H, 4);
  const auto grad_y = Array<float>::random(threads, count, 5);
  const Array<float> y(count), sum(count), grad_sum(count);
  const Array<float> mean(s.R), rstd(s.R), grad_gamma(s.H), grad_beta(s.H);
  const Array<T> copy(count), grad_x(count);
  // Rows of H numbers of magnitude 1: the error follows that of their mean.
  const double bound = 16 * std::sqrt(static_cast<double>(s.H)) * kFloatEpsilon;
  const bool bf16 = sizeof(T) == 2;

  Case forward = make_case<T>("layer norm forward", "layer_norm",
                              static_cast<double>(count * (2 * sizeof(T) + 3 * sizeof(float))));
  forward.run = [&](const Context& ctx) {
    kernels::dropout_add_layer_norm_forward<T>(ctx, s.batch.sequences(), s.H, kDropout,
                                               {.x = x.data(),
                                                .residual = residual.data(),
                                                .gamma = gamma.data(),
                                                .beta = beta.data(),
                                                .y = y.data(),
                                                .y_copy = bf16 ? copy.data() : nullptr,
                                                .sum = sum.data(),
                                                .mean = mean.data(),
                                                .rstd = rstd.data()});
  };
  if (!bf16) forward.work -= sizeof(T) * static_cast<double>(count);  // no copy
  forward.error = error_of(forward, bound, y, sum, copy);
  session.time(forward);

  forward.run(session.context());  // backward starts from what it saves
  Case backward = make_case<T>("layer norm backward", "layer_norm",
                               static_cast<double>(count * (sizeof(T) + 3 * sizeof(float))));
  backward.run = [&](const Context& ctx) {
    kernels::dropout_add_layer_norm_backward<T>(ctx, s.batch.sequences(), s.H, kDropout,
                                                {.grad_y = grad_y.data(),
                                                 .sum = sum.data(),
                                                 .mean = mean.data(),
                                                 .rstd = rstd.data(),
                                                 .gamma = gamma.data(),
                                                 .grad_sum = grad_sum.data(),
                                                 .grad_x = grad_x.data(),
                                                 .grad_gamma = grad_gamma.data(),
                                                 .grad_beta = grad_beta.data()});
  };
  const auto rows_error = error_of(backward, 4 * bound, grad_sum, grad_x);
  const auto columns_error =
      error_of(backward, bound * static_cast<double>(s.R), grad_gamma, grad_beta);
  backward.error = [&](const Context& fast, const Context& reference) {
    return std::max(rows_error(fast, reference), columns_error(fast, reference));
  };
  session.time(backward);
}

template <class T>
void time_dropout(Session& session, const Shapes& s) {
  const std::size_t count = s.R * s.H;
  const auto x = Array<T>::random(session.threads(), count, 1);
  const Array<T> y(count);
  Case one = make_case<T>("dropout", "dropout", 2.0 * sizeof(T) * static_cast<double>(count));
  one.run = [&](const Context& ctx) {
    kernels::dropout_forward(ctx, s.batch.sequences(), s.H, kDropout, x.data(), y.data());
  };
  one.error = error_of(one, 0, y);
  session.time(one);
}

template <class T>
void time_column_sums(Session& session, const Shapes& s) {
  const auto x = Array<T>::random(session.threads(), s.R * s.I, 1);
  const Array<float> sums(s.I);
  Case one = make_case<T>("bias gradient", "reduce", static_cast<double>(s.R * s.I * sizeof(T)));
  one.run = [&](const Context& ctx) {
    kernels::column_sums(ctx, s.R, s.I, x.data(), sums.data(), /*accumulate=*/false);
  };
  one.error = error_of(one, 4 * kFloatEpsilon * static_cast<double>(s.R), sums);
  session.time(one);
}

template <class T>
void time_embeddings(Session& session, const Shapes& s) {
  ThreadPool& threads = session.threads();
  const std::size_t V = s.config.vocab_size;
  const std::size_t P = std::max<std::size_t>(s.config.max_position_embeddings, s.R);
  constexpr std::size_t kTypes = 2;
  std::vector<std::int32_t> words(s.R), positions(s.R), types(s.R);
  for (std::size_t row = 0; row < s.R; ++row) {
    words[row] = static_cast<std::int32_t>(kernels::splitmix64(row) % V);
    types[row] = static_cast<std::int32_t>(row % kTypes);
  }
  const kernels::Sequences sequences = s.batch.sequences();
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    std::iota(positions.begin() + sequences.row_begin[i],
              positions.begin() + sequences.row_begin[i + 1], 0);
  }
  const kernels::EmbeddingIndices indices = {.word = words.data(),
                                             .position = positions.data(),
                                             .type = types.data(),
                                             .vocab_size = V,
                                             .max_positions = P,
                                             .type_vocab_size = kTypes};
  const std::size_t count = s.R * s.H;
  const auto word = Array<float>::random(threads, V * s.H, 1);
  const auto position = Array<float>::random(threads, P * s.H, 2);
  const auto type = Array<float>::random(threads, kTypes * s.H, 3);
  const auto gamma = Array<float>::random(threads, s.H, 4);
  const auto start = Array<float>::random(threads, count, 5);
  const Array<float> y(count), sum(count), mean(s.R), rstd(s.R), grad_y(count);
  const Array<T> copy(count);
  const Array<float> grad_word(V * s.H), grad_position(P * s.H), grad_type(kTypes * s.H);
  const Array<float> grad_gamma(s.H), grad_beta(s.H);
  const bool bf16 = sizeof(T) == 2;
  const double bound = 64 * std::sqrt(static_cast<double>(s.H)) * kFloatEpsilon;

  Case gather =
      make_case<T>("embeddings forward", "layer_norm",
                   static_cast<double>(count * (5 * sizeof(float) + (bf16 ? sizeof(T) : 0))));
  gather.run = [&](const Context& ctx) {
    kernels::embedding_forward<T>(ctx, sequences, s.H, indices, kDropout,
                                  {.word = word.data(),
                                   .position = position.data(),
                                   .type = type.data(),
                                   .gamma = gamma.data(),
                                   .beta = gamma.data(),
                                   .y = y.data(),
                                   .y_copy = bf16 ? copy.data() : nullptr,
                                   .sum = sum.data(),
                                   .mean = mean.data(),
                                   .rstd = rstd.data()});
  };
  gather.error = error_of(gather, bound, y, sum, copy);
  session.time(gather);

  if (bf16) return;  // the gradient is f32 in both
  gather.run(session.context());
  Case scatter = make_case<float>("embeddings backward", "layer_norm",
                                  static_cast<double>(sizeof(float) * (7 * count + (V + P) * s.H)));
  scatter.run = [&](const Context& ctx) {
    ctx.threads.parallel_for(s.R, [&](std::size_t row, int) {  // it is overwritten
      std::copy_n(start.data() + row * s.H, s.H, grad_y.data() + row * s.H);
    });
    kernels::embedding_backward(ctx, sequences, s.H, indices, kDropout,
                                {.grad_y = grad_y.data(),
                                 .sum = sum.data(),
                                 .mean = mean.data(),
                                 .rstd = rstd.data(),
                                 .gamma = gamma.data(),
                                 .grad_word = grad_word.data(),
                                 .grad_position = grad_position.data(),
                                 .grad_type = grad_type.data(),
                                 .grad_gamma = grad_gamma.data(),
                                 .grad_beta = grad_beta.data()});
  };
  const double rows = static_cast<double>(s.R);
  const auto tables_error =
      error_of(scatter, 4 * bound * std::sqrt(rows), grad_word, grad_position);
  const auto sums_error = error_of(scatter, bound * rows, grad_type, grad_gamma, grad_beta);
  scatter.error = [&](const Context& fast, const Context& reference) {
    return std::max(tables_error(fast, reference), sums_error(fast, reference));
  };
  session.time(scatter);
}

// The loss as its formula says, in f64; there is one implementation only.
double plain_span_loss(const kernels::Sequences& sequences, const float* logits,
                       std::int32_t target) {
  double loss = 0;
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    for (const std::size_t side : {0, 1}) {
      const auto at = [&](std::size_t row) {
        return static_cast<double>(logits[2 * (sequences.row_begin[i] + row) + side]);
      };
      double sum = 0;
      for (std::size_t row = 0; row < sequences.rows_of(i); ++row) sum += std::exp(at(row));
      loss += std::log(sum) - at(static_cast<std::size_t>(target));
    }
  }
  return loss / 2 / static_cast<double>(sequences.count());
}

void time_loss(Session& session, const Shapes& s) {
  const auto logits = Array<float>::random(session.threads(), 2 * s.R, 1);
  const Array<float> grad(2 * s.R);
  const kernels::Sequences sequences = s.batch.sequences();
  const std::vector<std::int32_t> targets(sequences.count(), 0);
  Case one = make_case<float>("cross entropy", "reduce",
                              2.0 * sizeof(float) * static_cast<double>(2 * s.R));
  double loss = 0;
  one.run = [&](const Context& ctx) {
    loss = kernels::span_cross_entropy(ctx, sequences, logits.data(), targets.data(),
                                       targets.data(), 1.0f, grad.data());
  };
  one.error = [&](const Context& fast, const Context&) {
    one.run(fast);
    const double want = plain_span_loss(sequences, logits.data(), 0);
    return std::abs(loss - want) / (1e-6 * want);
  };
  session.time(one);
}

template <class T>
void time_all(Session& session, const Shapes& s) {
  time_activation<T>(session, s, kernels::Activation::kGelu, "gelu");
  time_activation<T>(session, s, kernels::Activation::kGeluNew, "gelu_new");
  time_layer_norm<T>(session, s);
  time_dropout<T>(session, s);
  time_column_sums<T>(session, s);
  time_embeddings<T>(session, s);
}

int run(const ElementwiseOptions& options, const Environment& environment) {
  Session session("elementwise", options.common, environment);
  const models::ModelConfig config = named_model(options.model);
  const std::vector<std::uint32_t> lengths(options.batch.batch,
                                           static_cast<std::uint32_t>(options.batch.seq));
  const Shapes shapes = {.config = config,
                         .batch = Batch(lengths),
                         .H = config.hidden_size,
                         .I = config.intermediate_size,
                         .R = options.batch.rows()};
  session.report().line(
      fmt::format("{}: {} rows, H {}, I {}", options.model, shapes.R, shapes.H, shapes.I));
  for (const Dtype dtype : session.dtypes()) {
    if (dtype == Dtype::kF32) {
      time_all<float>(session, shapes);
      time_loss(session, shapes);
    } else {
      time_all<bfloat16>(session, shapes);
    }
  }
  return session.finish();
}

}  // namespace

Bench add_elementwise(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("elementwise", "what runs between the products");
  auto options = std::make_shared<ElementwiseOptions>();
  options->common.add_to(*app);
  options->common.add_filters_to(*app);
  options->batch.add_to(*app);
  app->add_option("--model", options->model, "whose shapes")->check(CLI::IsMember(model_names()));
  return {app, [options](const Environment& environment) { return run(*options, environment); }};
}

}  // namespace tandem::apps::bench
