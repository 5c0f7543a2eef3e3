#include "tandem/tasks/text_classification/text_features.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::text_classification {

void TextFeatures::append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                                 std::vector<std::int32_t>& types) const {
  const std::span all(ids_);
  const auto first = all.subspan(begins_[i], lengths_[i].first);
  if (!pairs_) return text::append_sequence(frame_, first, ids, types);
  const auto second = all.subspan(begins_[i] + lengths_[i].first, lengths_[i].second);
  text::append_sequence(frame_, first, second, ids, types);
}

// Makes features chunk by chunk, in parallel; chunks are put together in order.
class TextFeaturesBuilder {
 public:
  TextFeaturesBuilder(const text::Tokenizer& tokenizer, std::span<const std::string_view> first,
                      std::span<const std::string_view> second, std::size_t max_seq_length,
                      FunctionRef<std::string(std::size_t)> place)
      : tokenizer_(tokenizer), first_(first), second_(second), place_(place) {
    features_.frame_ = tokenizer.sequence_template();
    features_.pairs_ = !second.empty();
    features_.max_seq_length_ = max_seq_length;
    if (max_seq_length <= features_.special_tokens()) {
      raise<InvalidArgument>("max_seq_length is {}, which leaves no room beside {} special tokens",
                             max_seq_length, features_.special_tokens());
    }
  }

  TextFeatures build(ThreadPool& threads) {
    constexpr std::size_t kChunk = 64;
    std::vector<Chunk> chunks(num_chunks(first_.size(), kChunk));
    std::vector<text::Encoding> encodings(static_cast<std::size_t>(threads.num_threads()));
    threads.parallel_for(chunks.size(), [&](std::size_t c, int thread) {
      const std::size_t end = std::min(first_.size(), (c + 1) * kChunk);
      for (std::size_t i = c * kChunk; i < end; ++i)
        add(i, encodings[static_cast<std::size_t>(thread)], chunks[c]);
    });
    for (Chunk& chunk : chunks) append(chunk);
    return std::move(features_);
  }

 private:
  struct Chunk {
    std::vector<std::int32_t> ids;
    std::vector<TextFeatures::Lengths> lengths;
    std::size_t num_truncated = 0;
  };

  std::size_t encode(std::size_t i, std::string_view text, text::Encoding& encoding,
                     std::vector<std::int32_t>& ids) const {
    try {
      tokenizer_.encode(text, encoding);
    } catch (const DataError& error) {
      raise<DataError>("{}: {}", place_(i), error.what());
    }
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    return encoding.ids.size();
  }

  void add(std::size_t i, text::Encoding& encoding, Chunk& chunk) const {
    const std::size_t begin = chunk.ids.size();
    const std::size_t room = features_.max_seq_length_ - features_.special_tokens();
    const std::size_t a = encode(i, first_[i], encoding, chunk.ids);
    const std::size_t b =
        features_.pairs_ ? encode(i, second_[i], encoding, chunk.ids) : std::size_t{0};
    const auto [first, second] = features_.pairs_ ? text::truncate_longest_first(a, b, room)
                                                  : std::pair(std::min(a, room), std::size_t{0});
    const auto at = [&](std::size_t token) {
      return chunk.ids.begin() + static_cast<std::ptrdiff_t>(begin + token);
    };
    std::copy(at(a), at(a + second), at(first));
    chunk.ids.resize(begin + first + second);
    chunk.lengths.push_back(
        {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second)});
    chunk.num_truncated += first + second < a + b;
  }

  void append(Chunk& chunk) {
    std::uint64_t begin = features_.ids_.size();
    for (const auto& lengths : chunk.lengths) {
      features_.begins_.push_back(begin);
      features_.lengths_.push_back(lengths);
      begin += lengths.first + lengths.second;
    }
    features_.ids_.insert(features_.ids_.end(), chunk.ids.begin(), chunk.ids.end());
    features_.num_truncated_ += chunk.num_truncated;
    chunk = {};
  }

  const text::Tokenizer& tokenizer_;
  std::span<const std::string_view> first_, second_;
  FunctionRef<std::string(std::size_t)> place_;
  TextFeatures features_;
};

TextFeatures build_text_features(const text::Tokenizer& tokenizer,
                                 std::span<const std::string_view> first,
                                 std::span<const std::string_view> second,
                                 std::size_t max_seq_length, ThreadPool& threads,
                                 FunctionRef<std::string(std::size_t i)> place) {
  return TextFeaturesBuilder(tokenizer, first, second, max_seq_length, place).build(threads);
}

}  // namespace tandem::text_classification
