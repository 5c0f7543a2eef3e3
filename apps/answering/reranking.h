// Scores of passages for a query by a cross-encoder: what `tandem rerank` prints and `tandem serve`
// sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/answering/framed_sequences.h"
#include "apps/answering/inference_model.h"
#include "tandem/models/heads/cross_encoder_files.h"
#include "tandem/tasks/reranking/logit_reranker.h"

namespace tandem::apps {

struct RerankRequest {
  std::string query;
  std::vector<std::string> passages;
  std::string query_name = "query";       // for messages
  std::string passages_name = "passage";  // "texts" → "texts[2]"
  bool raw_scores = false;                // logits, without the model's activation
  bool truncate = true;                   // false: a pair that is too long is an error
};

// For a model that scores pairs by logits of its output layer (logit_reranker.h). Throws as
// read_logit_reranker().
std::optional<tasks::reranking::LogitReranker> find_logit_reranker(const FoundModel& found);

// The model of a reranker: with the head of `logit`, or with that of its class.
InferenceModel reranking_model(const FoundModel& found,
                               const std::optional<tasks::reranking::LogitReranker>& logit,
                               const Environment& environment);

struct PassageScores {
  std::vector<float> scores;  // in the order of the passages
  std::size_t tokens = 0;     // tokens of all pairs, special ones included
};

// The scores of sentence-transformers' CrossEncoder.predict. Several threads may ask at once.
class Reranker {
 public:
  // `model` must outlive it and have one label. max_seq_length: tokens of a pair; 0: the model's.
  // `logit` is that of reranking_model(). Throws ConfigError for a model with several labels,
  // DataError for an activation that is not computed.
  Reranker(const FoundModel& found, InferenceModel& model, std::size_t max_seq_length,
           std::optional<tasks::reranking::LogitReranker> logit = {});

  // Throws DataError that names the text, and Interrupted. Empty passages are scored as any other.
  PassageScores score(const RerankRequest& request, const std::stop_token& cancelled = {});

  std::size_t max_tokens() const { return max_tokens_; }
  const models::CrossEncoderFiles& files() const { return files_; }

 private:
  using Ids = std::vector<std::int32_t>;
  void check_room(std::size_t tokens, const RerankRequest& request, const std::string& name) const;
  // Adds the tokens of a pair.
  void add_pair(const RerankRequest& request, std::size_t i, const Ids& query,
                FramedSequences& sequences) const;

  InferenceModel& model_;
  std::optional<tasks::reranking::LogitReranker> logit_;
  text::SequenceTemplate frame_;  // of a pair, or of the text that a template makes of it
  models::CrossEncoderFiles files_;
  std::size_t max_tokens_;
};

// Indices by score, the highest first, equal ones in the order of the passages; at most `top_k`.
std::vector<std::size_t> best_passages(std::span<const float> scores, std::size_t top_k);

}  // namespace tandem::apps
