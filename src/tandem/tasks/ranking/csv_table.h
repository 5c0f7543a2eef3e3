// The tables that evaluators of sentence-transformers write next to a model: a row per evaluation.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::tasks::ranking {

struct CsvTable {
  std::string file = {};                 // "triplet_evaluation_dev_results.csv"
  std::vector<std::string> header = {};  // with "epoch" and "steps"
  std::vector<std::string> cells = {};   // without these two
  std::string_view line_end = "\r\n";
};

// When an evaluation took place.
struct EvaluatedAt {
  std::optional<double> epoch;  // nothing: without training, written as 0
  std::size_t steps = 0;
};

// Text to append to the table's file; `with_header` for a new file.
std::string csv_text(const CsvTable& table, const EvaluatedAt& at, bool with_header);

// Appends a row to the table's file in `directory`, which is made if it is missing. `most`: rows of
// this epoch and step at the end of the file afterwards; the last ones give way to the new row.
// Throws IoError.
void append_row(const std::filesystem::path& directory, const CsvTable& table,
                const EvaluatedAt& at, std::optional<std::size_t> most = std::nullopt);

}  // namespace tandem::tasks::ranking
