#include "tandem/tasks/text_classification/text_features.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/tasks/encode_in_chunks.h"
#include "tandem/tasks/feature_cache.h"

namespace tandem::text_classification {

void TextFeatures::append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                                 std::vector<std::int32_t>& types) const {
  const std::span all = ids_.view();
  const auto first = all.subspan(begins_[i], lengths_[i].first);
  if (!pairs_) return text::append_sequence(frame_, first, ids, types);
  const auto second = all.subspan(begins_[i] + lengths_[i].first, lengths_[i].second);
  text::append_sequence(frame_, first, second, ids, types);
}

namespace {

// Text i, or the texts of pair i. `made` is room for a text that is made here.
struct TextSource {
  std::size_t count = 0;
  bool pairs = false;
  FunctionRef<std::string_view(std::size_t i, std::string& made)> first;
  FunctionRef<std::string_view(std::size_t i)> second;
};

}  // namespace

class TextFeaturesBuilder {
 public:
  // `end`: tokens that a text which is cut ends with.
  TextFeaturesBuilder(const text::Tokenizer& tokenizer, const text::SequenceTemplate& frame,
                      const TextSource& texts, std::span<const std::int32_t> end,
                      std::size_t max_seq_length, FunctionRef<std::string(std::size_t)> location)
      : tokenizer_(tokenizer), texts_(texts), end_(end), location_(location) {
    features_.pairs_ = texts.pairs;
    features_.frame_ = frame;
    features_.max_seq_length_ = max_seq_length;
    special_tokens_ = features_.special_tokens();
    if (max_seq_length <= special_tokens_) {
      raise<InvalidArgument>(
          "max_seq_length is {}, which leaves no room in addition to {} special tokens",
          max_seq_length, special_tokens_);
    }
  }

  TextFeatures build(ThreadPool& threads) {
    auto chunks = tasks::encode_in_chunks<Chunk>(
        texts_.count, threads, location_,
        [&](std::size_t i, text::Encoding& encoding, Chunk& chunk) { add(i, encoding, chunk); });
    for (Chunk& chunk : chunks) append(chunk);
    features_.ids_ = std::move(ids_);
    features_.begins_ = std::move(begins_);
    features_.lengths_ = std::move(lengths_);
    return std::move(features_);
  }

 private:
  struct Chunk {
    std::vector<std::int32_t> ids;
    std::vector<TextFeatures::Lengths> lengths;
    std::size_t num_truncated = 0;
  };

  std::size_t encode(std::string_view text, text::Encoding& encoding,
                     std::vector<std::int32_t>& ids) const {
    tokenizer_.encode(text, encoding);
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    return encoding.ids.size();
  }

  void add(std::size_t i, text::Encoding& encoding, Chunk& chunk) const {
    const std::size_t begin = chunk.ids.size();
    const std::size_t room = features_.max_seq_length_ - special_tokens_;
    std::string made;
    const std::size_t a = encode(texts_.first(i, made), encoding, chunk.ids);
    const std::size_t b =
        features_.pairs_ ? encode(texts_.second(i), encoding, chunk.ids) : std::size_t{0};
    text::require_a_token(special_tokens_, a + b);
    const auto [first, second] = features_.pairs_ ? text::truncate_longest_first(a, b, room)
                                                  : std::pair(std::min(a, room), std::size_t{0});
    const auto at = [&](std::size_t token) {
      return chunk.ids.begin() + static_cast<std::ptrdiff_t>(begin + token);
    };
    std::copy(at(a), at(a + second), at(first));
    chunk.ids.resize(begin + first + second);
    if (first < a) {
      const auto kept = end_.last(std::min(end_.size(), first));
      std::copy(kept.begin(), kept.end(), at(first - kept.size()));
    }
    chunk.lengths.push_back(
        {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second)});
    chunk.num_truncated += first + second < a + b;
  }

  void append(Chunk& chunk) {
    std::uint64_t begin = ids_.size();
    for (const auto& lengths : chunk.lengths) {
      begins_.push_back(begin);
      begin += lengths.first + lengths.second;
    }
    tasks::append_and_free(lengths_, chunk.lengths);
    tasks::append_and_free(ids_, chunk.ids);
    features_.num_truncated_ += chunk.num_truncated;
  }

  const text::Tokenizer& tokenizer_;
  TextSource texts_;
  std::span<const std::int32_t> end_;
  FunctionRef<std::string(std::size_t)> location_;
  std::size_t special_tokens_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint64_t> begins_;
  std::vector<TextFeatures::Lengths> lengths_;
  TextFeatures features_;
};

TextFeatures build_text_features(const text::Tokenizer& tokenizer,
                                 std::span<const std::string_view> first,
                                 std::span<const std::string_view> second,
                                 std::size_t max_seq_length, ThreadPool& threads,
                                 FunctionRef<std::string(std::size_t i)> location) {
  const bool pairs = !second.empty();
  const auto text = [&](std::size_t i, std::string&) { return first[i]; };
  const auto other = [&](std::size_t i) { return second[i]; };
  return TextFeaturesBuilder(tokenizer,
                             pairs ? tokenizer.pair_template() : tokenizer.text_template(),
                             {first.size(), pairs, text, other}, {}, max_seq_length, location)
      .build(threads);
}

TextFeatures build_made_features(const text::Tokenizer& tokenizer, std::size_t count,
                                 FunctionRef<std::string(std::size_t i)> text,
                                 std::span<const std::int32_t> end, std::size_t max_seq_length,
                                 ThreadPool& threads,
                                 FunctionRef<std::string(std::size_t i)> location) {
  constexpr std::int32_t kNone = text::SequenceTemplate::kNoToken;
  const text::SequenceTemplate bare{
      .cls_id = kNone, .sep_id = kNone, .pad_id = tokenizer.text_template().pad_id};
  const auto make = [&](std::size_t i, std::string& made) -> std::string_view {
    return made = text(i);
  };
  const auto other = [](std::size_t) { return std::string_view(); };
  return TextFeaturesBuilder(tokenizer, bare, {count, false, make, other}, end, max_seq_length,
                             location)
      .build(threads);
}

std::size_t num_prompt_tokens(const text::Tokenizer& tokenizer, std::string_view prompt,
                              std::size_t max_seq_length) {
  if (prompt.empty()) return 0;
  text::Encoding encoding;
  tokenizer.encode(prompt, encoding);
  const text::SequenceTemplate frame = tokenizer.text_template();
  const std::size_t behind = frame.sep_id == text::SequenceTemplate::kNoToken ? 0 : 1;
  return std::min(encoding.ids.size() + frame.special_tokens_of_one(), max_seq_length) - behind;
}

std::string features_key(std::span<const std::string_view> first,
                         std::span<const std::string_view> second, std::size_t max_seq_length) {
  tasks::ContentDigest digest;
  for (const std::string_view text : first) digest.add(text);
  for (const std::string_view text : second) digest.add(text);
  return fmt::format("texts: {}\nsecond texts: {}\ncontent: {}\nmax_seq_length: {}\n", first.size(),
                     second.size(), digest.text(), max_seq_length);
}

}  // namespace tandem::text_classification
