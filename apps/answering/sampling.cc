#include "apps/answering/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "tandem/kernels/dropout.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Uniform in [0, 1).
double draw(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t bits = kernels::splitmix64(kernels::splitmix64(seed) + position);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Whether more bytes can complete the character.
bool is_begun(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes.front());
  const std::size_t length = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
  return first >= 0xc2 && first <= 0xf4 && bytes.size() < length &&
         std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; });
}

// Tokens from the likeliest on, equal ones in their order. They are sorted as far as they are read:
// most draws end after a few.
class LikeliestTokens {
 public:
  // most: of them that are read.
  LikeliestTokens(std::span<const float> logits, std::size_t most)
      : logits_(logits), most_(most), tokens_(logits.size()) {
    std::iota(tokens_.begin(), tokens_.end(), std::uint32_t{0});
  }

  std::size_t operator[](std::size_t i) {
    if (i >= sorted_) sort_more();
    return tokens_[i];
  }

 private:
  void sort_more() {
    constexpr std::size_t kFirst = 64, kGrowth = 8;
    const std::size_t end = std::min(most_, std::max(kFirst, kGrowth * sorted_));
    const auto at = [&](std::size_t i) { return tokens_.begin() + static_cast<std::ptrdiff_t>(i); };
    const auto likelier = [&](std::uint32_t a, std::uint32_t b) {
      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
    };
    std::partial_sort(at(sorted_), at(end), tokens_.end(), likelier);
    sorted_ = end;
  }

  std::span<const float> logits_;
  std::size_t most_, sorted_ = 0;
  std::vector<std::uint32_t> tokens_;
};

}  // namespace

std::size_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                         std::uint64_t position) {
  const auto likeliest =
      static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (!options.sample) return likeliest;
  const std::size_t left =
      options.top_k == 0 ? logits.size() : std::min(options.top_k, logits.size());
  LikeliestTokens tokens(logits, left);
  const auto weight = [&](std::size_t token) {
    return std::exp((static_cast<double>(logits[token]) - logits[likeliest]) / options.temperature);
  };
  double total = 0;
  if (left == logits.size()) {
    for (std::size_t token = 0; token < left; ++token) total += weight(token);
  } else {
    for (std::size_t i = 0; i < left; ++i) total += weight(tokens[i]);
  }
  double kept = total;
  std::size_t count = left;
  if (options.top_p < 1) {
    kept = 0;
    for (count = 0; count < left && (count == 0 || kept < options.top_p * total); ++count)
      kept += weight(tokens[count]);
  }
  double rest = draw(options.seed, position) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    rest -= weight(tokens[i]);
    if (rest < 0) return tokens[i];
  }
  return tokens[count - 1];
}

// The longest end of the text that is the begin of a stop.
std::size_t TextUntil::held_back() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, pending_.size()); n > longest; --n) {
      if (pending_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

std::string TextUntil::take(std::string_view piece) {
  if (stopped_) return "";
  pending_ += piece;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, pending_.find(stop));
  stopped_ = end != std::string::npos;
  if (!stopped_) end = pending_.size() - held_back();
  std::string text = pending_.substr(0, end);
  pending_.erase(0, stopped_ ? std::string::npos : end);
  return text;
}

std::string TextUntil::finish() { return std::exchange(pending_, ""); }

std::string TextFromBytes::take(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  while (const auto invalid = text::find_invalid_utf8(pending_)) {
    text += pending_.substr(0, *invalid);
    pending_.erase(0, *invalid);
    if (is_begun(pending_)) return text;
    text += kReplacement;
    pending_.erase(0, 1);
  }
  text += pending_;
  pending_.clear();
  return text;
}

std::string TextFromBytes::finish() {
  const bool left = !pending_.empty();
  pending_.clear();
  return std::string(left ? kReplacement : "");
}

}  // namespace tandem::apps
