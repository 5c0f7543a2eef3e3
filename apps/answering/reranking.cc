#include "apps/answering/reranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "apps/answering/framed_sequences.h"
#include "tandem/core/error.h"
#include "tandem/tasks/label_config.h"

namespace tandem::apps {
namespace {

std::vector<std::int32_t> tokens_of(const text::Tokenizer& tokenizer, const std::string& text,
                                    const std::string& name) {
  text::Encoding encoding;
  try {
    tokenizer.encode(text, encoding);
  } catch (const DataError& error) {
    raise<DataError>("{}: {}", name, error.what());
  }
  return std::move(encoding.ids);
}

std::string name_of_passage(const RerankRequest& request, std::size_t i) {
  return fmt::format("{}[{}]", request.passages_name, i);
}

}  // namespace

Reranker::Reranker(const FoundModel& found, InferenceModel& model, std::size_t max_seq_length)
    : model_(model),
      frame_(tasks::label_frame(model.tokenizer(), model.model().config(), /*pair=*/true)),
      max_tokens_(model.max_tokens()) {
  const std::size_t labels = label_names(found.config).size();
  files_ = models::read_cross_encoder_files(found.location.config_directory, found.config, labels);
  const std::string where = (found.location.config_directory / "config.json").string();
  if (labels != 1) {
    raise<ConfigError>(
        "{}: found {} labels, expected 1 to rank passages; use tandem predict --text_pair", where,
        labels);
  }
  if (max_seq_length > 0) max_tokens_ = std::min(max_tokens_, max_seq_length);
  if (max_tokens_ <= frame_.special_tokens_of_pair())
    raise<ConfigError>("--max_seq_length {}: found no room next to the special tokens of a pair",
                       max_tokens_);
}

PassageScores Reranker::score(const RerankRequest& request, const std::stop_token& cancelled) {
  const std::size_t room = max_tokens_ - frame_.special_tokens_of_pair();
  const auto query = tokens_of(model_.tokenizer(), request.query, request.query_name);
  std::vector<std::vector<std::int32_t>> passages;
  for (std::size_t i = 0; i < request.passages.size(); ++i) {
    const std::string name = name_of_passage(request, i);
    passages.push_back(tokens_of(model_.tokenizer(), request.passages[i], name));
    const std::size_t tokens = query.size() + passages.back().size();
    if (tokens > room && !request.truncate) {
      raise<DataError>("{} and the query have {} tokens, expected at most {}; send truncate true",
                       name, tokens + frame_.special_tokens_of_pair(), max_tokens_);
    }
    text::require_a_token(frame_.special_tokens_of_pair(), tokens);
  }
  // Pairs of one length are computed together: threads then end their work together.
  std::vector<std::size_t> order(passages.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return passages[a].size() > passages[b].size();
  });
  PassageScores found{.scores = std::vector<float>(passages.size()), .tokens = 0};
  auto sequences = std::make_shared<FramedSequences>();
  for (const std::size_t i : order) {
    const auto [a, b] = text::truncate_longest_first(query.size(), passages[i].size(), room);
    sequences->add(frame_, std::span(query).first(a), std::span(passages[i]).first(b));
    found.tokens += frame_.tokens_of_pair(a + b);
  }
  const std::vector<float> logits = model_.logits_of(sequences, cancelled);
  for (std::size_t k = 0; k < order.size(); ++k) {
    found.scores[order[k]] =
        request.raw_scores ? logits[k] : models::activate(files_.activation, logits[k]);
  }
  return found;
}

std::vector<std::size_t> best_passages(std::span<const float> scores, std::size_t top_k) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(top_k, order.size()));
  return order;
}

}  // namespace tandem::apps
