#include "tandem/tasks/question_answering/postprocess.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/text/utf8.h"

namespace tandem::question_answering {
namespace {

constexpr std::size_t kManySpans = 4096;  // in addition to n_best_size, before the rest is dropped
constexpr std::string_view kEmpty = "empty";  // utils_qa.py's answer when it found none

// A span of context that may become an answer; offsets (0, 0) = "no answer".
struct Span {
  float score;
  float start_logit, end_logit;
  text::Span offsets;
};

// NaN ranks last, so that broken logits still give an order.
float rank_key(float value) {
  return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
}

// Positions of the n largest values, descending; equal values by position.
void largest(std::span<const float> values, std::size_t n, std::vector<std::uint32_t>& positions) {
  positions.resize(values.size());
  std::iota(positions.begin(), positions.end(), 0u);
  n = std::min(n, positions.size());
  const auto middle = positions.begin() + static_cast<std::ptrdiff_t>(n);
  std::partial_sort(positions.begin(), middle, positions.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      const float x = rank_key(values[a]), y = rank_key(values[b]);
                      return x != y ? x > y : a < b;
                    });
  positions.resize(n);
}

// exp for x <= 0 as numpy computes it for float32 with AVX2 or AVX-512 (loops_exponent_log):
// Cody-Waite reduction to |r| <= ln 2 / 2 and a rational approximation, about 2.5 ulp. The same
// steps give the same bits, so the probabilities in
// *_nbest_predictions.json compare equal.
float numpy_exp(float x) {
  if (!(x > -103.97208404541015625f)) return std::isnan(x) ? x : 0.0f;
  constexpr float kRoundingMagic = 0x1.8p23f;
  const float quadrant = (x * 1.44269504088896340736f + kRoundingMagic) - kRoundingMagic;
  float r = std::fma(quadrant, -6.93145752e-1f, x);
  r = std::fma(quadrant, -1.42860677e-6f, r);
  float numerator = std::fma(5.082762527590693718096e-04f, r, 6.757896990527504603057e-03f);
  numerator = std::fma(numerator, r, 5.114512081637298353406e-02f);
  numerator = std::fma(numerator, r, 2.473615434895520810817e-01f);
  numerator = std::fma(numerator, r, 7.257664613233124478488e-01f);
  numerator = std::fma(numerator, r, 9.999999999980870924916e-01f);
  float denominator = std::fma(2.159509375685829852307e-02f, r, -2.742335390411667452936e-01f);
  denominator = std::fma(denominator, r, 1.0f);
  return std::ldexp(numerator / denominator, static_cast<int>(quadrant));
}

// numpy's sum of at most 128 contiguous values: eight running sums, then the rest.
float numpy_sum(std::span<const float> values) {
  float sum = 0;
  std::size_t i = 0;
  if (values.size() >= 8) {
    float r[8];
    std::copy_n(values.begin(), 8, r);
    for (i = 8; i + 8 <= values.size(); i += 8) {
      for (std::size_t k = 0; k < 8; ++k) r[k] += values[i + k];
    }
    sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  }
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

// Answers one example after another; one object per thread keeps the scratch memory.
class ExampleAnswerer {
 public:
  ExampleAnswerer(const FeatureSet& features, const Logits& logits,
                  const PostprocessOptions& options)
      : features_(features), logits_(logits), options_(options) {}

  Prediction answer(const data::QuestionExample& example, std::size_t first_feature,
                    std::size_t last_feature) {
    spans_.clear();
    null_.reset();
    lowest_kept_.reset();
    for (std::size_t i = first_feature; i < last_feature; ++i) {
      throw_if_interrupted();
      collect_spans(i);
      if (spans_.size() > kManySpans + options_.n_best_size) drop_the_rest();
    }
    if (options_.version_2_with_negative && null_) spans_.push_back(*null_);
    keep_best();
    Prediction prediction;
    prediction.id = example.id;
    set_candidates(example.context, prediction.n_best);
    choose(prediction);
    return prediction;
  }

 private:
  std::span<const float> of_feature(std::span<const float> logits, std::size_t i) const {
    return logits.subspan(logits_.row_begin[i], logits_.row_begin[i + 1] - logits_.row_begin[i]);
  }

  // The pairs of good starts and ends of one feature that lie in its context, in order and short
  // enough.
  void collect_spans(std::size_t i) {
    const auto start = of_feature(logits_.start, i), end = of_feature(logits_.end, i);
    const float null_score = start[0] + end[0];
    if (!null_ || null_->score > null_score) null_ = Span{null_score, start[0], end[0], {0, 0}};
    largest(start, options_.n_best_size, starts_);
    largest(end, options_.n_best_size, ends_);
    const auto offsets = features_.window_offsets(i);
    const std::size_t first = features_.first_context_token(i);
    const auto in_context = [&](std::size_t at) {
      return at >= first && at - first < offsets.size();
    };
    for (const std::uint32_t s : starts_) {
      if (!in_context(s)) continue;
      for (const std::uint32_t e : ends_) {
        if (lowest_kept_ && rank_key(start[s] + end[e]) <= *lowest_kept_) break;  // nor do later e
        if (!in_context(e) || e < s || e - s + 1 > options_.max_answer_length) continue;
        spans_.push_back({start[s] + end[e],
                          start[s],
                          end[e],
                          {offsets[s - first].begin, offsets[e - first].end}});
      }
    }
  }

  // Stable sort by score, the n_best_size first.
  void sort_and_cut() {
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return rank_key(a.score) > rank_key(b.score);
    });
    if (spans_.size() > options_.n_best_size) spans_.resize(options_.n_best_size);
  }

  // Memory does not grow with the number of features: what is cut here would be cut at the end, and
  // so would be a later span whose score is not higher than the lowest that was kept.
  void drop_the_rest() {
    sort_and_cut();
    lowest_kept_ = rank_key(spans_.back().score);
  }

  // "No answer" stays even if it was cut.
  void keep_best() {
    sort_and_cut();
    const bool has_null = std::any_of(spans_.begin(), spans_.end(), [](const Span& span) {
      return span.offsets == text::Span{0, 0};
    });
    if (options_.version_2_with_negative && null_ && !has_null) spans_.push_back(*null_);
  }

  void set_candidates(std::string_view context, std::vector<Candidate>& n_best) {
    n_best.reserve(std::max<std::size_t>(2, spans_.size()));  // lists are kept for all examples
    for (const Span& span : spans_) {
      throw_if_interrupted();  // each is looked for in the whole context
      n_best.push_back({text::slice_code_points(context, span.offsets.begin, span.offsets.end),
                        span.start_logit, span.end_logit, 0, false});
    }
    if (n_best.empty() || (n_best.size() == 1 && n_best[0].text.empty())) {
      n_best.insert(n_best.begin(), {kEmpty, 0, 0, 0, true});
      set_probabilities_in_double(n_best);
    } else {
      set_probabilities(n_best);
    }
  }

  // Softmax over the kept scores in float32.
  void set_probabilities(std::vector<Candidate>& n_best) {
    float highest = spans_[0].score;
    for (const Span& span : spans_) highest = std::max(highest, span.score);
    exponentials_.clear();
    for (const Span& span : spans_) exponentials_.push_back(numpy_exp(span.score - highest));
    const float sum = numpy_sum(exponentials_);
    for (std::size_t i = 0; i < n_best.size(); ++i) n_best[i].probability = exponentials_[i] / sum;
  }

  // With the placeholder, whose score is a Python float, numpy computes in float64.
  void set_probabilities_in_double(std::vector<Candidate>& n_best) const {
    const double null_score = spans_.empty() ? 0.0 : spans_[0].score;
    const double highest = std::max(0.0, null_score);
    const double placeholder = std::exp(0.0 - highest);
    const double null = spans_.empty() ? 0.0 : std::exp(null_score - highest);
    n_best[0].probability = placeholder / (placeholder + null);
    if (n_best.size() > 1) n_best[1].probability = null / (placeholder + null);
  }

  void choose(Prediction& prediction) const {
    const std::vector<Candidate>& n_best = prediction.n_best;
    if (!options_.version_2_with_negative) {
      prediction.text = n_best[0].text;
      return;
    }
    if (!null_) return;  // no feature: "" with odds 0
    const auto best = std::find_if(n_best.begin(), n_best.end(),
                                   [](const Candidate& c) { return !c.text.empty(); });
    TANDEM_CHECK(best != n_best.end(), "every list holds a text");
    const float odds =
        null_->score - static_cast<float>(best->start_logit) - static_cast<float>(best->end_logit);
    prediction.null_odds = odds;
    if (!(odds > options_.null_score_diff_threshold)) prediction.text = best->text;
  }

  const FeatureSet& features_;
  const Logits& logits_;
  const PostprocessOptions& options_;
  std::vector<Span> spans_;
  std::optional<float> lowest_kept_;  // its score
  std::optional<Span> null_;          // the least "no answer" score of the example's features
  std::vector<std::uint32_t> starts_, ends_;
  std::vector<float> exponentials_;
};

void check(const FeatureSet& features, const Logits& logits, const PostprocessOptions& options,
           std::size_t num_examples) {
  if (options.n_best_size == 0 || options.max_answer_length == 0) {
    raise<InvalidArgument>("n_best_size is {} and max_answer_length {}: both must be at least 1",
                           options.n_best_size, options.max_answer_length);
  }
  if (logits.row_begin.size() != features.size() + 1 ||
      logits.start.size() != logits.row_begin.back() || logits.end.size() != logits.start.size()) {
    raise<InvalidArgument>("{} start and {} end logits in {} sequences do not fit {} features",
                           logits.start.size(), logits.end.size(), logits.row_begin.size() - 1,
                           features.size());
  }
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (logits.row_begin[i] + features.num_real_tokens(i) > logits.row_begin[i + 1] ||
        features[i].example >= num_examples) {
      raise<InvalidArgument>("feature {} has {} tokens of example {} but logits for {}", i,
                             features.num_real_tokens(i), features[i].example,
                             logits.row_begin[i + 1] - logits.row_begin[i]);
    }
  }
}

// Features of example e are [begin[e], begin[e + 1]): features are ordered by example.
std::vector<std::size_t> features_of_examples(const FeatureSet& features,
                                              std::size_t num_examples) {
  std::vector<std::size_t> begin(num_examples + 1, 0);
  for (const Feature& feature : features.features()) ++begin[feature.example + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  return begin;
}

}  // namespace

Predictions postprocess(std::span<const data::QuestionExample> examples, const FeatureSet& features,
                        const Logits& logits, const PostprocessOptions& options,
                        ThreadPool& threads) {
  check(features, logits, options, examples.size());
  const std::vector<std::size_t> begin = features_of_examples(features, examples.size());
  Predictions out;
  out.predictions.resize(examples.size());
  std::vector<ExampleAnswerer> answerers(static_cast<std::size_t>(threads.num_threads()),
                                         ExampleAnswerer(features, logits, options));
  constexpr std::size_t kChunk = 32;  // examples
  threads.parallel_for(num_chunks(examples.size(), kChunk), [&](std::size_t chunk, int thread) {
    const std::size_t end = std::min(examples.size(), (chunk + 1) * kChunk);
    for (std::size_t e = chunk * kChunk; e < end; ++e) {
      out.predictions[e] =
          answerers[static_cast<std::size_t>(thread)].answer(examples[e], begin[e], begin[e + 1]);
    }
  });
  std::size_t without_features = 0;
  for (std::size_t e = 0; e < examples.size(); ++e) without_features += begin[e] == begin[e + 1];
  if (without_features > 0) {
    out.warnings.push_back(fmt::format(
        "{} of {} questions have no feature (max_*_samples or unusable examples): their "
        "answer is \"{}\"",
        without_features, examples.size(), options.version_2_with_negative ? "" : kEmpty));
  }
  return out;
}

}  // namespace tandem::question_answering
