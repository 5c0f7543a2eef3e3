// NanoBEIR: several small searches under one roof, and the mean of their metrics.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tandem/tasks/ranking/evaluators.h"
#include "tandem/tasks/ranking/retrieval_files.h"

namespace tandem::tasks::ranking {

// The name of a search and its files.
struct NanoBeirFiles {
  std::string name;  // "NanoMSMARCO"
  RetrievalFiles files;
};

// The searches of a directory with the folders corpus, queries and qrels: a file of each search in
// each folder, "NanoMSMARCO.jsonl" or "NanoMSMARCO-00000-of-00001.parquet". They come in the order
// of sentence-transformers, then others by name. `names`: only these; empty: all. A name may be
// that of the package, "msmarco". Throws DataError that names a file or folder that is missing.
std::vector<NanoBeirFiles> find_nano_beir(const std::filesystem::path& directory,
                                          std::span<const std::string> names);

// The name of the aggregate, "NanoBEIR_mean", which begins its keys. truncate_dim 0: none.
std::string nano_beir_name(std::size_t truncate_dim);
// The name of a search in keys and files: "NanoMSMARCO" or "NanoMSMARCO_256".
std::string nano_beir_name(const std::string& search, std::size_t truncate_dim);

// The mean of each metric over the searches, with keys that begin with the name of the aggregate.
// searches: results of information_retrieval() with the same functions and cuts, without names.
EvaluatorResult nano_beir_mean(std::span<const EvaluatorResult> searches, std::size_t truncate_dim);

}  // namespace tandem::tasks::ranking
