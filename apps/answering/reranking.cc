#include "apps/answering/reranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "tandem/core/error.h"
#include "tandem/models/heads/score_head.h"
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

// A text that a template makes has all of its special tokens.
text::SequenceTemplate frame_of(const InferenceModel& model, bool made) {
  if (!made) {
    return tasks::label_frame(model.tokenizer(), models::ignored_end(model.model().config()),
                              /*pair=*/true);
  }
  constexpr std::int32_t kNone = text::SequenceTemplate::kNoToken;
  return {.cls_id = kNone, .sep_id = kNone, .num_separators = 0};
}

}  // namespace

std::optional<tasks::reranking::LogitReranker> find_logit_reranker(const FoundModel& found) {
  const std::filesystem::path& directory = found.location.sentence_directory();
  if (!found.is_decoder() || purpose_of(found)) return std::nullopt;
  return tasks::reranking::read_logit_reranker(
      directory, found.config, text::Tokenizer::load(found.location.tokenizer_directory));
}

InferenceModel reranking_model(const FoundModel& found,
                               const std::optional<tasks::reranking::LogitReranker>& logit,
                               const Environment& environment) {
  if (!logit) return {found, Purpose::kTexts, environment};
  return {found, Purpose::kTexts,
          std::bind_front(models::make_logit_score_head, logit->files.score), environment};
}

Reranker::Reranker(const FoundModel& found, InferenceModel& model, std::size_t max_seq_length,
                   std::optional<tasks::reranking::LogitReranker> logit)
    : model_(model),
      logit_(std::move(logit)),
      frame_(frame_of(model, logit_.has_value())),
      max_tokens_(model.max_tokens()) {
  const std::size_t labels = logit_ ? 1 : label_names(found.config).size();
  files_ = models::read_cross_encoder_files(
      logit_ ? found.location.sentence_directory() : found.location.config_directory, found.config,
      labels);
  const std::string where = (found.location.config_directory / "config.json").string();
  if (labels != 1) {
    raise<ConfigError>(
        "{}: found {} labels, expected 1 to rank passages; use tandem predict --text_pair", where,
        labels);
  }
  if (max_seq_length > 0) max_tokens_ = std::min(max_tokens_, max_seq_length);
  const std::size_t own = logit_ ? logit_->prompt->end().size() : frame_.special_tokens_of_pair();
  if (max_tokens_ <= own)
    raise<ConfigError>("--max_seq_length {}: found no room next to the special tokens of a pair",
                       max_tokens_);
}

void Reranker::check_room(std::size_t tokens, const RerankRequest& request,
                          const std::string& name) const {
  text::require_a_token(0, tokens);
  if (tokens <= max_tokens_ || request.truncate) return;
  raise<DataError>("{} and the query have {} tokens, expected at most {}; send truncate true", name,
                   tokens, max_tokens_);
}

void Reranker::add_pair(const RerankRequest& request, std::size_t i, const Ids& query,
                        FramedSequences& sequences) const {
  const std::string name = name_of_passage(request, i);
  if (logit_) {
    Ids ids = tokens_of(model_.tokenizer(),
                        logit_->prompt->text(request.query, request.passages[i]), name);
    check_room(ids.size(), request, name);
    text::cut_but_keep_end(max_tokens_, logit_->prompt->end(), ids);
    return sequences.add(frame_, ids);
  }
  const Ids passage = tokens_of(model_.tokenizer(), request.passages[i], name);
  const std::size_t special = frame_.special_tokens_of_pair();
  check_room(query.size() + passage.size() + special, request, name);
  const auto [a, b] =
      text::truncate_longest_first(query.size(), passage.size(), max_tokens_ - special);
  sequences.add(frame_, std::span(query).first(a), std::span(passage).first(b));
}

PassageScores Reranker::score(const RerankRequest& request, const std::stop_token& cancelled) {
  Ids query;
  if (!logit_) query = tokens_of(model_.tokenizer(), request.query, request.query_name);
  FramedSequences pairs;
  for (std::size_t i = 0; i < request.passages.size(); ++i) add_pair(request, i, query, pairs);
  // Pairs of one length are computed together: threads then end their work together.
  std::vector<std::size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return pairs.num_real_tokens(a) > pairs.num_real_tokens(b);
  });
  PassageScores found{.scores = std::vector<float>(order.size()), .tokens = 0};
  auto sequences = std::make_shared<FramedSequences>();
  for (const std::size_t i : order) {
    sequences->add(pairs, i);
    found.tokens += pairs.num_real_tokens(i);
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
