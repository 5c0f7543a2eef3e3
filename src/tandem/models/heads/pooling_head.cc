#include "tandem/models/heads/pooling_head.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/core/thread_pool.h"

namespace tandem::models {
namespace {

constexpr PoolingName kNames[] = {
    {Pooling::kCls, "cls", "pooling_mode_cls_token"},
    {Pooling::kMax, "max", "pooling_mode_max_tokens"},
    {Pooling::kMean, "mean", "pooling_mode_mean_tokens"},
    {Pooling::kMeanSqrtLen, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
    {Pooling::kWeightedMean, "weightedmean", "pooling_mode_weightedmean_tokens"},
    {Pooling::kLastToken, "lasttoken", "pooling_mode_lasttoken"}};

// The tokens of one text: [n, H]. The first `begin` of them do not count.
struct Tokens {
  std::span<const float> hidden;
  std::size_t begin, n, width;

  float at(std::size_t i, std::size_t column) const { return hidden[i * width + column]; }
  // The first token that counts and has the largest value of a column.
  std::size_t largest(std::size_t column) const {
    std::size_t best = begin;
    for (std::size_t i = begin + 1; i < n; ++i) {
      if (at(i, column) > at(best, column)) best = i;
    }
    return best;
  }
};

double sum_to(std::size_t n) {
  const double count = static_cast<double>(n);
  return count * (count + 1) / 2;
}

// The factor of token i in a sum; 0: the token does not count. At least one token counts.
float weight_of(Pooling pooling, std::size_t i, const Tokens& tokens) {
  const double count = static_cast<double>(tokens.n - tokens.begin);
  switch (pooling) {
    case Pooling::kCls:
      return i == tokens.begin ? 1.0f : 0.0f;
    case Pooling::kLastToken:
      return i == tokens.n - 1 ? 1.0f : 0.0f;
    case Pooling::kMean:
      return static_cast<float>(1.0 / count);
    case Pooling::kMeanSqrtLen:
      return static_cast<float>(1.0 / std::sqrt(count));
    case Pooling::kWeightedMean:
      return static_cast<float>(static_cast<double>(i + 1) /
                                (sum_to(tokens.n) - sum_to(tokens.begin)));
    case Pooling::kMax:
      break;
  }
  return 0.0f;
}

// Calls visit(token, weight) for the tokens of a sum. Without a token that counts, the first one of
// the text stands for kCls, as in sentence-transformers, and the others are 0.
template <class Visit>
void for_each_weight(Pooling pooling, const Tokens& tokens, Visit&& visit) {
  if (tokens.begin == tokens.n) {
    if (pooling == Pooling::kCls) visit(std::size_t{0}, 1.0f);
    return;
  }
  for (std::size_t i = tokens.begin; i < tokens.n; ++i) {
    const float weight = weight_of(pooling, i, tokens);
    if (weight != 0.0f) visit(i, weight);
  }
}

void pool(Pooling pooling, const Tokens& tokens, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0f);
  if (pooling == Pooling::kMax && tokens.begin < tokens.n) {
    for (std::size_t c = 0; c < tokens.width; ++c) out[c] = tokens.at(tokens.largest(c), c);
    return;
  }
  for_each_weight(pooling, tokens, [&](std::size_t i, float weight) {
    for (std::size_t c = 0; c < tokens.width; ++c) out[c] += weight * tokens.at(i, c);
  });
}

// Adds to the gradient of the tokens, [n, H].
void pool_backward(Pooling pooling, const Tokens& tokens, std::span<const float> grad,
                   std::span<float> grad_hidden) {
  if (pooling == Pooling::kMax && tokens.begin < tokens.n) {
    for (std::size_t c = 0; c < tokens.width; ++c)
      grad_hidden[tokens.largest(c) * tokens.width + c] += grad[c];
    return;
  }
  for_each_weight(pooling, tokens, [&](std::size_t i, float weight) {
    for (std::size_t c = 0; c < tokens.width; ++c)
      grad_hidden[i * tokens.width + c] += weight * grad[c];
  });
}

HeadShape::Reads rows_read(const std::vector<Pooling>& poolings, bool include_prompt) {
  if (include_prompt && poolings == std::vector{Pooling::kCls}) return HeadShape::Reads::kFirst;
  if (include_prompt && poolings == std::vector{Pooling::kLastToken})
    return HeadShape::Reads::kLast;
  return HeadShape::Reads::kAll;
}

class PoolingHead final : public Head {
 public:
  PoolingHead(const std::vector<Pooling>& poolings, bool include_prompt, const ModelConfig& config)
      : Head({.class_suffix = "Model",
              .unit = HeadShape::Unit::kSequence,
              .reads = rows_read(poolings, include_prompt),
              .num_labels = poolings.size() * config.hidden_size}),
        poolings_(poolings),
        width_(config.hidden_size) {}

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float>,
               std::span<float> logits) const override {
    const StageTimer timer(pass.context.profile, "head", "pooling");
    pass.context.threads.parallel_for(pass.sequences.count(), [&](std::size_t text, int) {
      for (std::size_t p = 0; p < poolings_.size(); ++p)
        pool(poolings_[p], tokens_of(pass, hidden, text), part(logits, text, p));
    });
  }

  void backward(const nn::Pass& pass, std::span<const float> hidden, std::span<float>,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients&) const override {
    const StageTimer timer(pass.context.profile, "head", "pooling backward");
    pass.context.threads.parallel_for(pass.sequences.count(), [&](std::size_t text, int) {
      const std::size_t begin = pass.sequences.row_begin[text] * width_;
      const std::span<float> grad =
          grad_hidden.subspan(begin, pass.sequences.rows_of(text) * width_);
      std::fill(grad.begin(), grad.end(), 0.0f);
      for (std::size_t p = 0; p < poolings_.size(); ++p)
        pool_backward(poolings_[p], tokens_of(pass, hidden, text), part(grad_logits, text, p),
                      grad);
    });
  }

 private:
  Tokens tokens_of(const nn::Pass& pass, std::span<const float> hidden, std::size_t text) const {
    const std::size_t n = pass.sequences.key_count[text];
    return {hidden.subspan(pass.sequences.row_begin[text] * width_, n * width_),
            std::min(pass.unpooled_of(text), n), n, width_};
  }
  template <class T>
  std::span<T> part(std::span<T> values, std::size_t text, std::size_t pooling) const {
    return values.subspan((text * poolings_.size() + pooling) * width_, width_);
  }

  std::vector<Pooling> poolings_;
  std::size_t width_;
};

}  // namespace

std::span<const PoolingName> pooling_names() { return kNames; }

std::unique_ptr<Head> make_pooling_head(const std::vector<Pooling>& poolings, bool include_prompt,
                                        const ModelConfig& config, nn::ParameterLayout&) {
  if (poolings.empty()) throw InvalidArgument("a pooling head needs at least one pooling");
  return std::make_unique<PoolingHead>(poolings, include_prompt, config);
}

}  // namespace tandem::models
