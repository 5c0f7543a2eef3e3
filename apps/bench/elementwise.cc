// `kernel_bench elementwise`: what runs between the products of a layer, at the shapes of a model.
// Bytes are those that must be read and written once; the share is of a copy through memory.
#include <fmt/format.h>

#include <functional>
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

// Sizes that all of them need.
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

// Both errors of a backward pass, whose sums over rows are bounded otherwise than its rows.
auto worse_of(std::function<double(const Context&, const Context&)> one,
              std::function<double(const Context&, const Context&)> other) {
  return [one = std::move(one), other = std::move(other)](const Context& fast,
                                                          const Context& reference) {
    return std::max(one(fast, reference), other(fast, reference));
  };
}

// Operands and results of LayerNorm with dropout and residual.
template <class T>
class LayerNorm {
 public:
  LayerNorm(ThreadPool& threads, const Shapes& s)
      : s_(s),
        x_(Array<T>::random(threads, s.R * s.H, 1)),
        residual_(Array<float>::random(threads, s.R * s.H, 2)),
        gamma_(Array<float>::random(threads, s.H, 3)),
        beta_(Array<float>::random(threads, s.H, 4)),
        grad_y_(Array<float>::random(threads, s.R * s.H, 5)) {}

  void time(Session& session) const {
    time_forward(session);
    forward(session.context());  // backward starts from what it saves
    time_backward(session);
  }

 private:
  static constexpr bool kBf16 = sizeof(T) == 2;
  std::size_t count() const { return s_.R * s_.H; }
  // Rows of H numbers of magnitude 1: the error follows that of their mean.
  double bound() const { return 16 * std::sqrt(static_cast<double>(s_.H)) * kFloatEpsilon; }

  void time_forward(Session& session) const {
    const std::size_t copies = kBf16 ? 2 : 1;  // copies of x's size: x, and y's copy
    Case one =
        make_case<T>("layer norm forward", "layer_norm",
                     static_cast<double>(count() * (copies * sizeof(T) + 3 * sizeof(float))));
    one.run = [&](const Context& ctx) { forward(ctx); };
    one.error = error_of(one, bound(), y_, sum_, copy_);
    session.time(one);
  }
  void time_backward(Session& session) const {
    Case one = make_case<T>("layer norm backward", "layer_norm",
                            static_cast<double>(count() * (sizeof(T) + 3 * sizeof(float))));
    one.run = [&](const Context& ctx) { backward(ctx); };
    one.error =
        worse_of(error_of(one, 4 * bound(), grad_sum_, grad_x_),
                 error_of(one, bound() * static_cast<double>(s_.R), grad_gamma_, grad_beta_));
    session.time(one);
  }

  void forward(const Context& ctx) const {
    kernels::dropout_add_layer_norm_forward<T>(ctx, s_.batch.sequences(), s_.H, kDropout,
                                               {.x = x_.data(),
                                                .residual = residual_.data(),
                                                .gamma = gamma_.data(),
                                                .beta = beta_.data(),
                                                .y = y_.data(),
                                                .y_copy = kBf16 ? copy_.data() : nullptr,
                                                .sum = sum_.data(),
                                                .mean = mean_.data(),
                                                .rstd = rstd_.data()});
  }
  void backward(const Context& ctx) const {
    kernels::dropout_add_layer_norm_backward<T>(ctx, s_.batch.sequences(), s_.H, kDropout,
                                                {.grad_y = grad_y_.data(),
                                                 .sum = sum_.data(),
                                                 .mean = mean_.data(),
                                                 .rstd = rstd_.data(),
                                                 .gamma = gamma_.data(),
                                                 .grad_sum = grad_sum_.data(),
                                                 .grad_x = grad_x_.data(),
                                                 .grad_gamma = grad_gamma_.data(),
                                                 .grad_beta = grad_beta_.data()});
  }

  const Shapes& s_;
  const Array<T> x_;
  const Array<float> residual_, gamma_, beta_, grad_y_;
  const Array<float> y_{count()}, sum_{count()}, grad_sum_{count()};
  const Array<float> mean_{s_.R}, rstd_{s_.R}, grad_gamma_{s_.H}, grad_beta_{s_.H};
  const Array<T> copy_{count()}, grad_x_{count()};
};

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

// Which rows of the tables a batch reads.
struct Indices {
  static constexpr std::size_t kTypes = 2;

  explicit Indices(const Shapes& s)
      : vocab_size(s.config.vocab_size),
        max_positions(std::max<std::size_t>(s.config.max_position_embeddings, s.R)),
        words(s.R),
        positions(s.R),
        types(s.R) {
    for (std::size_t row = 0; row < s.R; ++row) {
      words[row] = static_cast<std::int32_t>(kernels::splitmix64(row) % vocab_size);
      types[row] = static_cast<std::int32_t>(row % kTypes);
    }
    const kernels::Sequences sequences = s.batch.sequences();
    for (std::size_t i = 0; i < sequences.count(); ++i) {
      std::iota(positions.begin() + sequences.row_begin[i],
                positions.begin() + sequences.row_begin[i + 1], 0);
    }
  }
  kernels::EmbeddingIndices view() const {
    return {.word = words.data(),
            .position = positions.data(),
            .type = types.data(),
            .vocab_size = vocab_size,
            .max_positions = max_positions,
            .type_vocab_size = kTypes};
  }

  std::size_t vocab_size, max_positions;
  std::vector<std::int32_t> words, positions, types;
};

// Tables, operands and results of the embeddings with their LayerNorm.
template <class T>
class Embeddings {
 public:
  Embeddings(ThreadPool& threads, const Shapes& s)
      : s_(s),
        indices_(s),
        word_(Array<float>::random(threads, indices_.vocab_size * s.H, 1)),
        position_(Array<float>::random(threads, indices_.max_positions * s.H, 2)),
        type_(Array<float>::random(threads, Indices::kTypes * s.H, 3)),
        gamma_(Array<float>::random(threads, s.H, 4)),
        start_(Array<float>::random(threads, s.R * s.H, 5)) {}

  void time(Session& session) const {
    time_forward(session);
    if (kBf16) return;  // the gradient is f32 in both
    forward(session.context());
    time_backward(session);
  }

 private:
  static constexpr bool kBf16 = sizeof(T) == 2;
  std::size_t count() const { return s_.R * s_.H; }
  double bound() const { return 64 * std::sqrt(static_cast<double>(s_.H)) * kFloatEpsilon; }

  void time_forward(Session& session) const {
    Case one =
        make_case<T>("embeddings forward", "layer_norm",
                     static_cast<double>(count() * (5 * sizeof(float) + (kBf16 ? sizeof(T) : 0))));
    one.run = [&](const Context& ctx) { forward(ctx); };
    one.error = error_of(one, bound(), y_, sum_, copy_);
    session.time(one);
  }
  void time_backward(Session& session) const {
    const std::size_t table_rows = indices_.vocab_size + indices_.max_positions;
    Case one =
        make_case<float>("embeddings backward", "layer_norm",
                         static_cast<double>(sizeof(float) * (7 * count() + table_rows * s_.H)));
    one.run = [&](const Context& ctx) { backward(ctx); };
    const double rows = static_cast<double>(s_.R);
    one.error = worse_of(error_of(one, 4 * bound() * std::sqrt(rows), grad_word_, grad_position_),
                         error_of(one, bound() * rows, grad_type_, grad_gamma_, grad_beta_));
    session.time(one);
  }

  void forward(const Context& ctx) const {
    kernels::embedding_forward<T>(ctx, s_.batch.sequences(), s_.H, indices_.view(), kDropout,
                                  {.word = word_.data(),
                                   .position = position_.data(),
                                   .type = type_.data(),
                                   .gamma = gamma_.data(),
                                   .beta = gamma_.data(),
                                   .y = y_.data(),
                                   .y_copy = kBf16 ? copy_.data() : nullptr,
                                   .sum = sum_.data(),
                                   .mean = mean_.data(),
                                   .rstd = rstd_.data()});
  }
  void backward(const Context& ctx) const {
    ctx.threads.parallel_for(s_.R, [&](std::size_t row, int) {  // it is overwritten
      std::copy_n(start_.data() + row * s_.H, s_.H, grad_y_.data() + row * s_.H);
    });
    kernels::embedding_backward(ctx, s_.batch.sequences(), s_.H, indices_.view(), kDropout,
                                {.grad_y = grad_y_.data(),
                                 .sum = sum_.data(),
                                 .mean = mean_.data(),
                                 .rstd = rstd_.data(),
                                 .gamma = gamma_.data(),
                                 .grad_word = grad_word_.data(),
                                 .grad_position = grad_position_.data(),
                                 .grad_type = grad_type_.data(),
                                 .grad_gamma = grad_gamma_.data(),
                                 .grad_beta = grad_beta_.data()});
  }

  const Shapes& s_;
  const Indices indices_;
  const Array<float> word_, position_, type_, gamma_, start_;
  const Array<float> y_{count()}, sum_{count()}, mean_{s_.R}, rstd_{s_.R}, grad_y_{count()};
  const Array<T> copy_{count()};
  const Array<float> grad_word_{indices_.vocab_size * s_.H};
  const Array<float> grad_position_{indices_.max_positions * s_.H};
  const Array<float> grad_type_{Indices::kTypes * s_.H}, grad_gamma_{s_.H}, grad_beta_{s_.H};
};

// The loss by its formula, in f64; there is one implementation only.
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
  LayerNorm<T>(session.threads(), s).time(session);
  time_dropout<T>(session, s);
  time_column_sums<T>(session, s);
  Embeddings<T>(session.threads(), s).time(session);
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
  Flags flags(parent, "elementwise", "what runs between the products");
  auto options = std::make_shared<ElementwiseOptions>();
  options->common.add_to(flags);
  options->common.add_filters_to(flags);
  options->batch.add_to(flags);
  flags.choice("--model", options->model, "whose shapes", model_names());
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
