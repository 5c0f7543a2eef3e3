#include "tandem/tasks/token_classification/features.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/tasks/encode_in_chunks.h"
#include "tandem/tasks/feature_cache.h"
#include "tandem/tasks/token_classification/labels.h"

namespace tandem::token_classification {

void FeatureSet::append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                               std::vector<std::int32_t>& types) const {
  const std::size_t begin = token_begins_[i];
  text::append_sequence(frame_, ids_.subspan(begin, token_begins_[i + 1] - begin), ids, types);
}

namespace {

std::size_t num_used(const SentenceSet& sentences, const FeatureOptions& options) {
  return std::min(sentences.size(), options.max_samples.value_or(sentences.size()));
}

}  // namespace

class FeatureBuilder {
 public:
  FeatureBuilder(const text::Tokenizer& tokenizer, const SentenceSet& sentences,
                 std::span<const std::string> names, const FeatureOptions& options)
      : tokenizer_(tokenizer),
        sentences_(sentences),
        options_(options),
        size_(num_used(sentences, options)) {
    if (sentences.has_tags()) {
      first_ = label_ids(sentences, names);
      further_ = first_;
      const auto inside = inside_labels(names);
      for (std::uint32_t& label : further_) {
        if (label < inside.size()) label = inside[label];
      }
    }
    set_.frame_ = tokenizer.sequence_template();
    choose_max_seq_length();
  }

  FeatureSet build(ThreadPool& threads) {
    auto chunks = tasks::encode_in_chunks<Chunk>(
        size_, threads, [&](std::size_t i) { return sentences_.location(i); },
        [&](std::size_t i, text::Encoding& encoding, Chunk& chunk) { add(i, encoding, chunk); });
    for (Chunk& chunk : chunks) append(chunk);
    set_.statistics_.num_tokens = ids_.size() + size_ * set_.frame_.special_tokens_of_one();
    set_.ids_ = std::move(ids_);
    set_.token_begins_ = std::move(token_begins_);
    set_.positions_ = std::move(positions_);
    set_.position_begins_ = std::move(position_begins_);
    warn_of_cuts();
    return std::move(set_);
  }

 private:
  struct Chunk {
    std::vector<std::int32_t> ids;
    std::vector<Position> positions;
    std::vector<std::size_t> num_ids, num_positions;  // ids and positions of each sentence
    std::size_t cut_sentences = 0, cut_words = 0, empty_words = 0;
  };

  void choose_max_seq_length() {
    const std::size_t wanted = options_.max_seq_length.value_or(tokenizer_.model_max_length());
    set_.max_seq_length_ = std::min(wanted, options_.max_positions);
    if (options_.max_seq_length && wanted > options_.max_positions) {
      set_.statistics_.warnings.push_back(
          fmt::format("max_seq_length ({}) is larger than the longest sequence of the model, {}: "
                      "using {}",
                      wanted, options_.max_positions, options_.max_positions));
    }
    if (set_.max_seq_length_ > set_.frame_.special_tokens_of_one()) return;
    raise<ConfigError>("--max_seq_length {} leaves no room in addition to {} special tokens",
                       set_.max_seq_length_, set_.frame_.special_tokens_of_one());
  }

  void add(std::size_t i, text::Encoding& encoding, Chunk& chunk) const {
    const auto words = sentences_.words(i);
    tokenizer_.encode_words(words, encoding);
    const std::size_t kept =
        std::min(encoding.ids.size(), set_.max_seq_length_ - set_.frame_.special_tokens_of_one());
    chunk.ids.insert(chunk.ids.end(), encoding.ids.begin(),
                     encoding.ids.begin() + static_cast<std::ptrdiff_t>(kept));
    chunk.num_ids.push_back(kept);
    const std::size_t before = chunk.positions.size();
    std::size_t with_tokens = 0, kept_words = 0;
    for (std::size_t token = 0; token < encoding.ids.size(); ++token) {
      const bool first = token == 0 || encoding.word_ids[token] != encoding.word_ids[token - 1];
      with_tokens += first;
      if (token >= kept) continue;
      kept_words += first;
      if (first || options_.label_all_tokens)
        chunk.positions.push_back(position(i, token, encoding.word_ids[token], first));
    }
    chunk.num_positions.push_back(chunk.positions.size() - before);
    chunk.empty_words += words.size() - with_tokens;
    chunk.cut_words += with_tokens - kept_words;
    chunk.cut_sentences += kept < encoding.ids.size();
  }

  // The sequence begins with one special token.
  Position position(std::size_t i, std::size_t token, std::uint32_t word, bool first) const {
    Position position{static_cast<std::uint32_t>(token + 1), word, 0};
    if (!first_.empty()) position.label = (first ? first_ : further_)[sentences_.tags(i)[word]];
    return position;
  }

  void append(Chunk& chunk) {
    tasks::append_and_free(ids_, chunk.ids);
    tasks::append_and_free(positions_, chunk.positions);
    for (const std::size_t count : chunk.num_ids)
      token_begins_.push_back(token_begins_.back() + count);
    for (const std::size_t count : chunk.num_positions)
      position_begins_.push_back(position_begins_.back() + count);
    set_.statistics_.num_cut_sentences += chunk.cut_sentences;
    set_.statistics_.num_cut_words += chunk.cut_words;
    set_.statistics_.num_empty_words += chunk.empty_words;
  }

  void warn_of_cuts() {
    FeatureStatistics& statistics = set_.statistics_;
    if (statistics.num_cut_sentences > 0) {
      statistics.warnings.push_back(fmt::format(
          "{} of {} sentences are longer than {} tokens: {} words at their ends are "
          "left out and get no tag",
          statistics.num_cut_sentences, size_, set_.max_seq_length_, statistics.num_cut_words));
    }
    if (statistics.num_empty_words > 0) {
      statistics.warnings.push_back(
          fmt::format("{} words have no token (empty texts, invisible characters): they are left "
                      "out and get no tag",
                      statistics.num_empty_words));
    }
  }

  const text::Tokenizer& tokenizer_;
  const SentenceSet& sentences_;
  const FeatureOptions options_;
  const std::size_t size_;
  std::vector<std::uint32_t> first_, further_;  // by tag name: of a word's first token, of others
  std::vector<std::int32_t> ids_;
  std::vector<Position> positions_;
  std::vector<std::size_t> token_begins_{0}, position_begins_{0};
  FeatureSet set_;
};

FeatureSet build_features(const text::Tokenizer& tokenizer, const SentenceSet& sentences,
                          std::span<const std::string> names, const FeatureOptions& options,
                          ThreadPool& threads) {
  return FeatureBuilder(tokenizer, sentences, names, options).build(threads);
}

std::string features_key(const SentenceSet& sentences, std::span<const std::string> names,
                         const FeatureOptions& options) {
  tasks::ContentDigest digest;
  for (const std::string& name : names) digest.add(name);
  for (const std::string& name : sentences.tag_names()) digest.add(name);
  const std::size_t size = num_used(sentences, options);
  for (std::size_t i = 0; i < size; ++i) {
    const auto words = sentences.words(i);
    const std::size_t num_words = words.size();
    digest.add(std::span(&num_words, 1));
    for (const std::string_view word : words) digest.add(word);
    digest.add(sentences.tags(i));
  }
  return fmt::format(
      "sentences: {}\nnames: {}\ntags: {}\ncontent: {}\nmax_seq_length: {}\nmax_positions: {}\n"
      "label_all_tokens: {}\n",
      size, names.size(), sentences.tag_names().size(), digest.text(),
      options.max_seq_length ? fmt::to_string(*options.max_seq_length) : "none",
      options.max_positions, options.label_all_tokens);
}

}  // namespace tandem::token_classification
