// `kernel_bench attention`: the fused attention of one layer, forward and backward.
#include "tandem/kernels/attention.h"

#include <fmt/format.h>

#include <memory>

#include "apps/bench/data.h"
#include "apps/bench/session.h"

namespace tandem::apps::bench {
namespace {

using kernels::Context;

struct AttentionOptions {
  Options common;
  BatchOptions batch;
  std::string lengths;
};

struct Heads {
  std::size_t count, dim;
};
constexpr Heads kHeads[] = {{12, 32}, {12, 64}, {16, 64}, {8, 128}};
constexpr float kDropoutRate = 0.1f;

template <class T>
class Attention {
 public:
  Attention(ThreadPool& threads, const Heads& heads, const std::vector<std::uint32_t>& lengths)
      : heads_(heads),
        H_(heads.count * heads.dim),
        batch_(lengths),
        qkv_(Array<T>::random(threads, batch_.rows() * 3 * H_, 1)),
        grad_out_(Array<T>::random(threads, batch_.rows() * H_, 2)),
        out_(Array<T>::random(threads, batch_.rows() * H_, 3)),
        grad_qkv_(Array<T>::random(threads, batch_.rows() * 3 * H_, 4)),
        log_sum_exp_(Array<float>::random(threads, heads.count * batch_.rows(), 5)) {}

  void forward(const Context& ctx) const {
    kernels::attention_forward(ctx, batch_.sequences(), {heads_.count, heads_.dim}, dropout(),
                               qkv_.data(), out_.data(), log_sum_exp_.data());
  }
  void backward(const Context& ctx) const {
    kernels::attention_backward(ctx, batch_.sequences(), {heads_.count, heads_.dim}, dropout(),
                                qkv_.data(), out_.data(), log_sum_exp_.data(), grad_out_.data(),
                                grad_qkv_.data());
  }

  // Both directions of the shortest sequence: the whole batch would take the reference minutes.
  // Backward of both versions starts from what `fast` saved. The bounds are those of the tests,
  // and the rounding of probabilities to T.
  double error(const Context& fast, const Context& reference) const {
    forward(fast);
    backward(fast);
    const One one = shortest();
    const kernels::Sequences sequence{one.row_begin, one.key_count, one.sample};
    const std::size_t rows = sequence.rows();
    const T* qkv = qkv_.data() + one.first_row * 3 * H_;
    std::vector<T> out(rows * H_);
    std::vector<float> log_sum_exp(heads_.count * rows);
    kernels::attention_forward(reference, sequence, {heads_.count, heads_.dim}, dropout(), qkv,
                               out.data(), log_sum_exp.data());
    std::vector<float> saved;
    for (std::size_t head = 0; head < heads_.count; ++head) {
      const float* of_head = log_sum_exp_.data() + head * batch_.rows() + one.first_row;
      saved.insert(saved.end(), of_head, of_head + rows);
    }
    const std::span<const T> got(out_.data() + one.first_row * H_, rows * H_);
    std::vector<T> grad_qkv(rows * 3 * H_);
    kernels::attention_backward(reference, sequence, {heads_.count, heads_.dim}, dropout(), qkv,
                                got.data(), saved.data(), grad_out_.data() + one.first_row * H_,
                                grad_qkv.data());
    const std::span<const T> got_grad(grad_qkv_.data() + one.first_row * 3 * H_, grad_qkv.size());

    const double rounding = 8 * kFloatEpsilon * std::sqrt(static_cast<double>(rows + heads_.dim));
    const double storage = std::is_same_v<T, float> ? 0 : 0x1p-8;
    const std::span<const T> want(out);
    const std::span<const T> want_grad(grad_qkv);
    const double largest = largest_magnitude(want_grad);
    const double out_bound =
        rounding / (1 - static_cast<double>(kDropoutRate)) + storage * largest_magnitude(want);
    const double grad_bound = rounding * 2 * std::max(1.0, largest) + storage * largest;
    return std::max({worst_error(got, want, out_bound),
                     worst_error<float>(saved, log_sum_exp, 4 * rounding + storage),
                     worst_error(got_grad, want_grad, grad_bound)});
  }

  // FLOPs of the scores and the weighted sums, without what backward recomputes.
  double forward_flops() const { return 4 * static_cast<double>(H_) * batch_.pairs(); }

 private:
  static kernels::Dropout dropout() {
    return {.p = kDropoutRate, .seed = 1, .step = 2, .site = kernels::kAttentionSite};
  }

  struct One {  // a sequence as a batch of its own
    std::size_t first_row;
    std::vector<std::uint32_t> row_begin, key_count;
    std::vector<std::uint64_t> sample;
  };
  One shortest() const {
    const kernels::Sequences all = batch_.sequences();
    std::size_t best = 0;
    for (std::size_t i = 1; i < all.count(); ++i) {
      if (all.rows_of(i) < all.rows_of(best)) best = i;
    }
    return {all.row_begin[best],
            {0, static_cast<std::uint32_t>(all.rows_of(best))},
            {all.key_count[best]},
            {all.sample[best]}};
  }

  Heads heads_;
  std::size_t H_;
  Batch batch_;
  Array<T> qkv_, grad_out_, out_, grad_qkv_;
  Array<float> log_sum_exp_;
};

template <class T>
void time_heads(Session& session, const Heads& heads, std::string_view kind,
                const std::vector<std::uint32_t>& lengths) {
  const std::string forward = fmt::format("{}x{} {} forward", heads.count, heads.dim, kind);
  const std::string backward = fmt::format("{}x{} {} backward", heads.count, heads.dim, kind);
  if (!session.wants(forward) && !session.wants(backward)) return;
  const Attention<T> attention(session.threads(), heads, lengths);
  Case one;
  one.operation = "attention";
  one.dtype = kDtypeOf<T>;
  one.error = [&](const Context& fast, const Context& reference) {
    return attention.error(fast, reference);
  };
  one.name = forward;
  one.work = attention.forward_flops();
  one.run = [&](const Context& ctx) { attention.forward(ctx); };
  session.time(one);
  one.name = backward;
  one.work = 2 * attention.forward_flops();
  one.run = [&](const Context& ctx) { attention.backward(ctx); };
  session.time(one);
}

int run(const AttentionOptions& options, const Environment& environment) {
  Session session("attention", options.common, environment);
  const std::size_t batch = options.batch.batch;
  const std::size_t seq = options.batch.seq;
  for (const Dtype dtype : session.dtypes()) {
    for (const Heads& heads : kHeads) {
      for (const std::string kind : {"padded", "squad"}) {
        if (!options.lengths.empty() && options.lengths != kind) continue;
        const auto lengths = named_lengths(kind, batch, seq);
        if (dtype == Dtype::kF32) {
          time_heads<float>(session, heads, kind, lengths);
        } else {
          time_heads<bfloat16>(session, heads, kind, lengths);
        }
      }
    }
  }
  return session.finish();
}

}  // namespace

Bench add_attention(CLI::App& parent) {
  Flags flags(parent, "attention", "attention with dropout 0.1");
  auto options = std::make_shared<AttentionOptions>();
  options->common.add_to(flags);
  options->common.add_undisturbed_to(flags);
  options->common.add_filters_to(flags);
  options->batch.add_to(flags);
  flags.choice("--lengths", options->lengths,
               "padded: all sequences have --seq tokens; squad: those of SQuAD; not given: both",
               {"padded", "squad"});
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
