// Files of a retrieval test in BEIR's form: a corpus, queries, and which documents answer a query.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/tasks/ranking/retrieval.h"
#include "tandem/tasks/ranking/search.h"

namespace tandem::tasks::ranking {

// Every file is one of data::row_file_extensions(): JSON lines, TSV or CSV with a header, Parquet.
struct RetrievalFiles {
  std::filesystem::path corpus;   // columns _id and text
  std::filesystem::path queries;  // columns _id and text
  // Columns query-id and corpus-id, which may be a list, and score if there is one: above 0 means
  // relevant.
  std::filesystem::path qrels;
};

struct RetrievalTexts {
  std::vector<std::string> ids;
  std::vector<std::string> texts;
};

// Documents of the corpus that answer a query.
struct Relevant {
  std::vector<std::size_t> documents;  // sorted
  std::size_t unknown = 0;  // ids that the corpus lacks: never found, but counted as relevant
};

struct RetrievalSet {
  RetrievalTexts corpus;
  RetrievalTexts queries;          // those with a relevant document
  std::vector<Relevant> relevant;  // relevant documents of each query
  // Notes for the user about omitted data: "3 queries have no relevant document and are left out".
  std::vector<std::string> notes;
};

// Empty texts, queries without a relevant document and judgements of unknown queries are left out
// with a note, as sentence-transformers leaves them out without one. Ids may be numbers. Throws
// DataError that names file and row: a missing column, an id or a text that is null, an id that
// stands for two texts, no query that is left.
RetrievalSet read_retrieval_set(const RetrievalFiles& files);

// Numbers of documents or queries by their id.
using IdNumbers = std::unordered_map<std::string, std::size_t>;

// The ids of documents that a judgement names as relevant, each with the number 0: for a corpus
// that is too large for the memory. Throws what read_retrieval_set() throws.
IdNumbers judged_documents(const std::filesystem::path& qrels);

// The set without its corpus. `corpus`: the judged documents that the corpus has, with their
// numbers in it. Throws what read_retrieval_set() throws.
RetrievalSet read_judged_queries(const RetrievalFiles& files, const IdNumbers& corpus);

// Among equal scores, the document with the greater id comes first, as there.
BreakTie greater_id_first(const RetrievalTexts& corpus);

// Input of retrieval_scores(). hits: one list per query.
std::vector<QueryHits> judged_hits(const RetrievalSet& set, std::span<const std::vector<Hit>> hits);

}  // namespace tandem::tasks::ranking
