#include "tandem/tasks/ranking/nano_beir.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/python_json.h"
#include "tandem/data/read_rows.h"
#include "tandem/formats/compressed_file.h"
#include "tandem/tasks/ranking/numpy_mean.h"

namespace tandem::tasks::ranking {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 13> kNames = {
    "NanoClimateFEVER", "NanoDBPedia",  "NanoFEVER",     "NanoFiQA2018",       "NanoHotpotQA",
    "NanoMSMARCO",      "NanoNFCorpus", "NanoNQ",        "NanoQuoraRetrieval", "NanoSCIDOCS",
    "NanoArguAna",      "NanoSciFact",  "NanoTouche2020"};

// "NanoMSMARCO-00000-of-00001.parquet" -> "NanoMSMARCO".
std::string search_name(const fs::path& file) {
  std::string stem = formats::uncompressed_name(file).stem().string();
  const std::size_t shard = stem.rfind("-00000-of-00001");
  if (shard != stem.npos) stem.resize(shard);
  return stem;
}

using FilesByName = std::map<std::string, fs::path>;

FilesByName files_in(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    raise<DataError>("--nano_beir: found no folder '{}', expected corpus, queries and qrels",
                     folder.string());
  }
  FilesByName files;
  for (const fs::path& file : list_directory(folder)) {
    if (!data::is_row_file(file)) continue;
    const auto [at, is_new] = files.emplace(search_name(file), file);
    if (!is_new) {
      raise<DataError>("--nano_beir: found '{}' and '{}', expected one file of a search",
                       at->second.string(), file.string());
    }
  }
  return files;
}

const fs::path& file_of(const FilesByName& files, const std::string& name, const fs::path& folder) {
  const auto found = files.find(name);
  if (found != files.end()) return found->second;
  raise<DataError>("--nano_beir: found no file of {} in '{}', expected one", name, folder.string());
}

std::size_t position_of(const std::string& name) {
  return static_cast<std::size_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}

// The names of the files, or those that were asked for.
std::vector<std::string> chosen(const FilesByName& files, std::span<const std::string> names) {
  std::vector<std::string> all;
  for (const auto& [name, file] : files) all.push_back(name);
  std::stable_sort(all.begin(), all.end(), [](const std::string& a, const std::string& b) {
    return position_of(a) < position_of(b);
  });
  if (names.empty()) return all;
  std::vector<std::string> asked;
  for (const std::string& name : names) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const std::string& one) {
      return ascii_lower(one) == ascii_lower(name) ||
             ascii_lower(one) == "nano" + ascii_lower(name);
    });
    if (found == all.end())
      raise<ConfigError>("--nano_beir_names: found '{}', expected one of {}", name,
                         fmt::join(all, ", "));
    asked.push_back(*found);
  }
  return asked;
}

}  // namespace

std::vector<NanoBeirFiles> find_nano_beir(const fs::path& directory,
                                          std::span<const std::string> names) {
  const FilesByName corpora = files_in(directory / "corpus");
  const FilesByName queries = files_in(directory / "queries");
  const FilesByName qrels = files_in(directory / "qrels");
  std::vector<NanoBeirFiles> found;
  for (const std::string& name : chosen(corpora, names)) {
    found.push_back({name,
                     {.corpus = corpora.at(name),
                      .queries = file_of(queries, name, directory / "queries"),
                      .qrels = file_of(qrels, name, directory / "qrels")}});
  }
  if (found.empty())
    raise<DataError>("--nano_beir: found no data file in '{}', expected one of each search",
                     (directory / "corpus").string());
  return found;
}

std::string nano_beir_name(std::size_t truncate_dim) {
  return nano_beir_name("NanoBEIR_mean", truncate_dim);
}

std::string nano_beir_name(const std::string& search, std::size_t truncate_dim) {
  return truncate_dim == 0 ? search : fmt::format("{}_{}", search, truncate_dim);
}

EvaluatorResult nano_beir_mean(std::span<const EvaluatorResult> searches,
                               std::size_t truncate_dim) {
  EvaluatorResult result = searches.front();
  std::map<std::string, double> means;
  for (std::size_t i = 0; i < result.metrics.size(); ++i) {
    std::vector<double> values;
    for (const EvaluatorResult& search : searches) values.push_back(search.metrics[i].second);
    result.metrics[i].second = numpy_mean(values);
    means[result.metrics[i].first] = result.metrics[i].second;
  }
  result.table.file = "NanoBEIR_evaluation_mean_results.csv";
  // "cosine-MRR@10" is the cell of "cosine_mrr@10".
  for (std::size_t i = 0; i < result.table.cells.size(); ++i) {
    std::string key = ascii_lower(result.table.header[i + 2]);
    std::replace(key.begin(), key.end(), '-', '_');
    result.table.cells[i] = python_repr(means.at(key));
  }
  add_name(result, nano_beir_name(truncate_dim));
  return result;
}

}  // namespace tandem::tasks::ranking
