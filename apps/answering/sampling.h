// The next token of a generated text: the likeliest one, or one that is drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::apps {

// As in transformers' generate(): the logits are divided by the temperature, then only the top_k
// likeliest tokens are left, then the least number of likeliest tokens whose probabilities sum to
// top_p or more.
struct SamplingOptions {
  bool sample = false;  // false: the likeliest token, the first of equals
  double temperature = 1;
  std::size_t top_k = 50;  // 0: all
  double top_p = 1;
  std::uint64_t seed = 42;
};

// The index of the chosen logit. A draw is a function of the logits, the options and `position`,
// which is the token's place in the text.
std::size_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                         std::uint64_t position);

// Text up to the first of some texts that end it.
class TextUntil {
 public:
  // Empty stops end nothing.
  explicit TextUntil(std::vector<std::string> stops) : stops_(std::move(stops)) {
    std::erase(stops_, std::string());
  }

  // The text that certainly belongs with this piece; the begin of a stop is held back.
  std::string take(std::string_view piece);
  // The rest at the end.
  std::string finish();
  // Whether a stop was found; what follows it does not belong to the text.
  bool stopped() const { return stopped_; }

 private:
  std::size_t held_back() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

// Text from the bytes of tokens, which may end inside of a character.
class TextFromBytes {
 public:
  // The characters that are complete with these bytes. U+FFFD stands for bytes that are not UTF-8.
  std::string take(std::string_view bytes);
  // The rest at the end: nothing, or U+FFFD for an incomplete character.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace tandem::apps
