// Rows of queries and answers with hard negatives: what `tandem mine` writes.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/answering/embedding.h"
#include "tandem/tasks/ranking/mining.h"

namespace tandem::apps {

enum class MinedFormat { kTriplet, kTuple, kLabeledPair, kLabeledList };

// Views of texts that outlive the call.
struct QueryAnswer {
  std::string_view query, answer;
};

struct MineOptions {
  tasks::ranking::MiningOptions mining;
  tasks::ranking::Similarity similarity = tasks::ranking::Similarity::kCosine;
  MinedFormat format = MinedFormat::kTriplet;
  bool scores = false;  // in place of labels, or in addition to the texts
  std::string query_column = "query", answer_column = "answer";  // names of the output
};

struct MinedRows {
  std::size_t queries = 0, documents = 0;  // without repetitions
  std::size_t rows = 0;                    // written
  std::size_t short_queries = 0;           // with fewer negatives than asked for
  tasks::ranking::MiningCounts left_out;
};

// The two sides of a search: embeddings of texts, and what is computed so far, for a progress line.
using EmbedTexts = std::function<std::vector<float>(std::span<const std::string> texts)>;

struct MiningModel {
  EmbedTexts embed_queries, embed_documents;
  std::size_t width = 0;
};

// Finds negatives for the queries among all answers and `corpus`. Calls write(row) for each row, in
// the order of the queries. Repeated queries are one query with several answers; repeated documents
// are one. A document that repeats the query's own text is not a negative, which differs from
// sentence-transformers. Memory: the embeddings of the queries and of one piece of the documents.
// Throws ConfigError for options that contradict each other.
MinedRows mine_hard_negatives(std::span<const QueryAnswer> rows,
                              std::span<const std::string_view> corpus, const MiningModel& model,
                              const MineOptions& options, const kernels::Context& context,
                              const std::function<void(const nlohmann::ordered_json&)>& write);

}  // namespace tandem::apps
