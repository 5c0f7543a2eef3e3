// `kernel_bench optimizer`: AdamW and the gradient norm over all parameters of a model, compared
// with a stream of the same bytes.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#include "apps/bench/data.h"
#include "apps/bench/session.h"
#include "tandem/dist/model_state.h"
#include "tandem/dist/update_journal.h"
#include "tandem/kernels/adamw.h"
#include "tandem/kernels/reduce.h"
#include "tandem/tasks/question_answering/span_head.h"

namespace tandem::apps::bench {
namespace {

using kernels::Context;

struct OptimizerOptions {
  Options common;
  std::string model = "bert-base";
};

constexpr kernels::AdamWStep kStep = {.lr = 1e-5, .weight_decay = 0.01, .step = 3};

// Two steps of `count` elements from the same start with both versions.
double adamw_error(const Context& fast, const Context& reference, bool with_copy) {
  constexpr std::size_t kCount = 100'003;
  struct OptimizerState {
    Array<float> grad, p, m, v;
    Array<bfloat16> copy;
  };
  const auto update = [&](const Context& ctx) {
    OptimizerState s{Array<float>::random(ctx.threads, kCount, 1),
                     Array<float>::random(ctx.threads, kCount, 2), Array<float>(kCount),
                     Array<float>(kCount), Array<bfloat16>(kCount)};
    for (int i = 0; i < 2; ++i) {
      kernels::adamw(ctx, kCount, kStep, s.grad.data(), s.p.data(), s.m.data(), s.v.data(),
                     with_copy ? s.copy.data() : nullptr);
    }
    return s;
  };
  const OptimizerState got = update(fast);
  const OptimizerState want = update(reference);
  constexpr double kBound = 4 * kFloatEpsilon;
  return std::max({worst_error(got.p.span(), want.p.span(), kBound),
                   worst_error(got.m.span(), want.m.span(), kBound),
                   worst_error(got.v.span(), want.v.span(), kBound),
                   worst_error(got.copy.span(), want.copy.span(), kBound)});
}

// `untouched` elements at the end have no gradient and no moments yet, as rows of the word
// embeddings that no batch has named.
void time_adamw(Session& session, const std::string& model, std::size_t count,
                std::size_t untouched, bool with_copy) {
  const std::string name = fmt::format(
      "{} AdamW{}{}", model, with_copy ? " with a bf16 copy" : "",
      untouched == 0 ? ""
                     : fmt::format(", {:.0f} % untouched", 100.0 * static_cast<double>(untouched) /
                                                               static_cast<double>(count)));
  if (!session.wants(name)) return;
  ThreadPool& threads = session.threads();
  const auto grad = Array<float>::random(threads, count, 1);
  const auto parameters = Array<float>::random(threads, count, 2);
  const auto exp_avg = Array<float>::random(threads, count, 1);
  // Squares: not negative.
  const auto exp_avg_sq = Array<float>::random(threads, count, 3);
  for (std::size_t i = 0; i < count; ++i) exp_avg_sq.data()[i] = std::abs(exp_avg_sq.data()[i]);
  for (const auto* array : {&grad, &exp_avg, &exp_avg_sq}) {
    std::fill_n(array->data() + count - untouched, untouched, 0.0f);
  }
  const auto copy = Array<bfloat16>::random(threads, with_copy ? count : 1, 4);
  kernels::AdamWStep step = kStep;
  if (untouched > 0) step.weight_decay = 0;  // run_qa's default
  Case one;
  one.name = name;
  one.operation = "optimizer";
  one.dtype = with_copy ? Dtype::kBf16 : Dtype::kF32;
  one.unit = Unit::kBytes;
  one.work = (with_copy ? 30.0 : 28.0) * static_cast<double>(count);
  one.run = [&](const Context& ctx) {
    kernels::adamw(ctx, count, step, grad.data(), parameters.data(), exp_avg.data(),
                   exp_avg_sq.data(), with_copy ? copy.data() : nullptr);
  };
  one.error = [&](const Context& fast, const Context& reference) {
    return adamw_error(fast, reference, with_copy);
  };
  one.calibrate = [&] { return session.streams().update(with_copy); };
  session.time(one);
}

// A rank's update of a whole model as training runs it; `kept`: so that others could finish it, as
// ranks that share a node do it.
void time_update(Session& session, const std::string& model, const nn::ParameterLayout& layout,
                 bool kept) {
  const std::string name = model + (kept ? " update that others can finish" : " update");
  if (!session.wants(name)) return;
  ThreadPool& threads = session.threads();
  const std::size_t count = layout.size();
  const auto optimizer = optim::make_optimizer({}, layout);
  const auto grad = Array<float>::random(threads, count, 1);
  // Weights and moments, one behind the other; the second moment is not negative.
  const auto memory = Array<float>::random(threads, 3 * count, 2);
  for (std::size_t i = 2 * count; i < 3 * count; ++i) memory.data()[i] = std::abs(memory.data()[i]);
  const optim::ParameterArenas arenas = {.weights = {memory.data(), count},
                                         .weights_bf16 = {},
                                         .gradients = grad.span(),
                                         .state = {memory.data() + count, 2 * count}};
  const optim::UpdatePieces pieces = optimizer->pieces();
  dist::UpdateHeader header;
  std::vector<std::atomic<std::uint64_t>> progress(pieces.count);
  const std::size_t slot = dist::UndoSlot::bytes(pieces);
  const Buffer slots(slot * static_cast<std::size_t>(threads.num_threads()));
  dist::UpdateJournal journal(header, memory.data(), progress, slots.as<std::byte>(),
                              {slots.as<std::byte>()}, slot);
  Case one;
  one.name = name;
  one.operation = "optimizer";
  one.unit = Unit::kBytes;
  one.work = 28.0 * static_cast<double>(count);
  one.run = [&](const Context& ctx) {
    ++header.step;  // or all pieces were done
    optimizer->step(ctx, {.step = header.step, .learning_rate = 1e-5}, arenas, 0, count,
                    kept ? &journal : nullptr);
  };
  one.error = [](const Context& fast, const Context& reference) {
    return adamw_error(fast, reference, /*with_copy=*/false);
  };
  one.calibrate = [&] { return session.streams().update(/*with_copy=*/false); };
  session.time(one);
}

void time_norm(Session& session, const std::string& model, std::size_t count) {
  const std::string name = model + " gradient norm";
  if (!session.wants(name)) return;
  const auto grad = Array<float>::random(session.threads(), count, 1);
  constexpr std::size_t kChunk = dist::ModelState::kChunk;
  std::vector<double> partials(num_chunks(count, kChunk));
  const auto norm = [&](const Context& ctx) {
    ctx.threads.parallel_for(partials.size(), [&](std::size_t chunk, int) {
      const std::size_t begin = chunk * kChunk;
      partials[chunk] =
          kernels::squared_norm(ctx.kernels, std::min(kChunk, count - begin), grad.data() + begin);
    });
    return std::accumulate(partials.begin(), partials.end(), 0.0);
  };
  Case one;
  one.name = name;
  one.operation = "reduce";
  one.unit = Unit::kBytes;
  one.work = sizeof(float) * static_cast<double>(count);
  one.run = [&](const Context& ctx) { norm(ctx); };
  one.error = [&](const Context& fast, const Context& reference) {
    const double want = norm(reference);
    return std::abs(norm(fast) - want) / (1e-12 * want);  // sums in f64
  };
  one.calibrate = [&] { return session.streams().read(); };
  session.time(one);
}

int run(const OptimizerOptions& options, const Environment& environment) {
  Session session("optimizer", options.common, environment);
  const models::ModelConfig config = named_model(options.model);
  const models::EncoderModel named(config, question_answering::make_span_head);
  const std::size_t count = named.layout().size();
  // Half of the word embeddings.
  const std::size_t untouched = config.vocab_size / 2 * config.hidden_size;
  session.report().line(fmt::format("{} parameters", count));
  for (const Dtype dtype : session.dtypes()) {
    for (const std::size_t zeros : {std::size_t{0}, untouched}) {
      time_adamw(session, options.model, count, zeros, dtype == Dtype::kBf16);
    }
  }
  for (const bool kept : {false, true}) time_update(session, options.model, named.layout(), kept);
  time_norm(session, options.model, count);
  return session.finish();
}

}  // namespace

Bench add_optimizer(CLI::App& parent) {
  Flags flags(parent, "optimizer", "AdamW and the gradient norm");
  auto options = std::make_shared<OptimizerOptions>();
  options->common.add_to(flags);
  options->common.add_filters_to(flags);
  flags.choice("--model", options->model, "whose number of parameters", model_names());
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
