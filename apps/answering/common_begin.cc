#include "apps/answering/common_begin.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace tandem::apps {
namespace {

using Ids = std::vector<std::int32_t>;

// Side by side, so that products have rows enough.
constexpr std::size_t kMostLanes = 8;
// Rows of keys and values in all lanes. Qwen3-0.6B has 224 KiB for each in f32.
constexpr std::size_t kMostKept = 4096;

// The number of lanes for sequences of up to `longest` tokens.
std::size_t lanes_for(std::size_t sequences, std::size_t longest, std::size_t begin) {
  const std::size_t most =
      std::min(InferenceModel::kRowsBehind / (longest - begin), kMostKept / longest);
  return std::min({kMostLanes, sequences, std::max<std::size_t>(1, most)});
}

Ids tokens_of(const tasks::TokenSequences& sequences, std::size_t i) {
  Ids ids, types;
  sequences.append_tokens(i, ids, types);
  return ids;
}

// Keys and values of the common begin, once for each sequence that is computed side by side.
class Lanes {
 public:
  Lanes(InferenceModel& model, std::size_t count, std::span<const std::int32_t> begin,
        std::size_t longest)
      : model_(model), begin_(begin.size()) {
    for (std::size_t i = 0; i < count; ++i)
      lanes_.push_back(model.model().make_key_values(longest, model.precision()));
    const std::size_t piece = InferenceModel::kRowsBehind / count;
    for (std::size_t at = 0; at < begin.size(); at += piece) {
      const auto part = begin.subspan(at, std::min(piece, begin.size() - at));
      forward(std::vector(count, part));
    }
  }

  std::size_t size() const { return lanes_.size(); }

  // The logits of these sequences, at most size(), from behind their begin on. Together they have
  // up to kRowsBehind rows, or there is one.
  std::vector<float> logits_of(std::span<const Ids> sequences) {
    for (models::KeyValues& lane : lanes_) lane.keep(begin_);
    std::vector<std::span<const std::int32_t>> rest;
    for (const Ids& ids : sequences) rest.push_back(std::span(ids).subspan(begin_));
    for (; rest.front().size() > InferenceModel::kRowsBehind;
         rest.front() = rest.front().subspan(InferenceModel::kRowsBehind))
      forward({rest.front().first(InferenceModel::kRowsBehind)});
    return forward(rest);
  }

 private:
  std::vector<float> forward(const std::vector<std::span<const std::int32_t>>& parts) {
    nn::PackedBatch batch;
    std::vector<models::KeyValues*> past;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      batch.append(parts[i], {}, i);
      past.push_back(&lanes_[i]);
    }
    std::vector<float> logits(model_.model().num_logits(batch));
    model_.forward_behind(batch, past, logits);
    return logits;
  }

  InferenceModel& model_;
  std::size_t begin_;
  std::vector<models::KeyValues> lanes_;
};

}  // namespace

std::size_t common_begin(const tasks::TokenSequences& sequences) {
  if (sequences.size() == 0) return 0;
  const Ids first = tokens_of(sequences, 0);
  std::size_t common = first.size() - 1;
  for (std::size_t i = 1; i < sequences.size(); ++i) {
    const Ids ids = tokens_of(sequences, i);
    const auto end = first.begin() + static_cast<std::ptrdiff_t>(std::min(common, ids.size() - 1));
    common = static_cast<std::size_t>(std::mismatch(first.begin(), end, ids.begin()).first -
                                      first.begin());
  }
  return common;
}

bool saves_time(std::size_t begin, const tasks::TokenSequences& sequences) {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i)
    longest = std::max(longest, sequences.num_real_tokens(i));
  return begin > 0 && 8 * begin >= longest && longest <= kMostKept;
}

std::vector<float> logits_behind(InferenceModel& model, const tasks::TokenSequences& sequences,
                                 std::size_t begin) {
  const std::vector<std::uint32_t> order = tasks::by_length(sequences);
  const std::size_t longest = sequences.num_real_tokens(order.front());
  const Ids first = tokens_of(sequences, 0);
  Lanes lanes(model, lanes_for(order.size(), longest, begin), std::span(first).first(begin),
              longest);
  const std::size_t width = model.model().num_logits(0, 1);
  std::vector<float> logits(order.size() * width);
  for (std::size_t at = 0; at < order.size(); at += lanes.size()) {
    const auto group = std::span(order).subspan(at, std::min(lanes.size(), order.size() - at));
    std::vector<Ids> texts;
    for (const std::uint32_t i : group) texts.push_back(tokens_of(sequences, i));
    const std::vector<float> found = lanes.logits_of(texts);
    for (std::size_t k = 0; k < group.size(); ++k)
      std::copy_n(found.begin() + static_cast<std::ptrdiff_t>(k * width), width,
                  logits.begin() + static_cast<std::ptrdiff_t>(group[k] * width));
  }
  return logits;
}

}  // namespace tandem::apps
