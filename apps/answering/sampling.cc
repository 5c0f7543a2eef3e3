#include "apps/answering/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
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

}  // namespace

std::size_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                         std::uint64_t position) {
  const auto likeliest =
      static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (!options.sample) return likeliest;
  std::vector<std::size_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), std::size_t{0});
  const auto likelier = [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const std::size_t left =
      options.top_k == 0 ? tokens.size() : std::min(options.top_k, tokens.size());
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(left),
                    tokens.end(), likelier);
  tokens.resize(left);
  std::vector<double> weights;
  double total = 0;
  for (const std::size_t token : tokens) {
    const double above = static_cast<double>(logits[token]) - logits[likeliest];
    total += weights.emplace_back(std::exp(above / options.temperature));
  }
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * total))
    kept += weights[count++];
  double rest = draw(options.seed, position) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    rest -= weights[i];
    if (rest < 0) return tokens[i];
  }
  return tokens[count - 1];
}

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
