// A collection for InformationRetrievalEvaluator in the form of BEIR: documents, queries, and which
// document is relevant to which query.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <unordered_set>
#include <vector>

#include "tandem/data/read_rows.h"

namespace tandem::tasks::embedding {

struct RetrievalFiles {
  std::filesystem::path corpus;   // columns _id and text
  std::filesystem::path queries;  // columns _id and text
  std::filesystem::path qrels;    // columns query-id and corpus-id; a column score above 0 counts
};

struct RetrievalData {
  std::vector<std::string> query_ids, document_ids;
  std::vector<std::string> queries, documents;            // texts
  std::vector<std::unordered_set<std::size_t>> relevant;  // of each query: documents
  std::size_t queries_left_out = 0;                       // that have no relevant document

  std::size_t texts() const { return queries.size() + documents.size(); }
};

// Empty documents are left out, as in sentence-transformers. Throws DataError that names file and
// row: for a missing column, an id that occurs twice, and ids of qrels that no row has.
RetrievalData read_retrieval_data(const RetrievalFiles& files);

}  // namespace tandem::tasks::embedding
