#include "tandem/tasks/embedding/retrieval_data.h"

#include <unordered_map>

#include "tandem/core/error.h"

namespace tandem::tasks::embedding {
namespace {

using Index = std::unordered_map<std::string, std::size_t>;

const data::Column& column_of(const data::Rows& rows, std::string_view name) {
  const data::Column* column = rows.find(name);
  if (column == nullptr) {
    raise<DataError>("{}: found no column {}, expected one; the columns are {}", rows.file(), name,
                     fmt::join(rows.file_columns(), ", "));
  }
  return *column;
}

// Ids are texts or whole numbers.
std::string id_at(const data::Rows& rows, const data::Column& column, std::size_t row) {
  if (!column.is_null(row)) {
    if (column.kind == data::Column::Kind::kText) return std::string(column.texts[row]);
    if (column.kind == data::Column::Kind::kInteger) return std::to_string(column.integers[row]);
  }
  raise<DataError>("{}: {}: found no text and no whole number, expected an id", rows.place(row),
                   column.name);
}

struct Texts {
  std::vector<std::string> ids, texts;
  Index index;
};

Texts read_texts(const std::filesystem::path& file, bool skip_empty) {
  const data::Rows rows = data::read_rows(std::vector{file});
  const data::Column& ids = column_of(rows, "_id");
  const data::Column& texts = rows.texts("text");
  Texts found;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (skip_empty && texts.texts[row].empty()) continue;
    std::string id = id_at(rows, ids, row);
    if (!found.index.emplace(id, found.ids.size()).second)
      raise<DataError>("{}: the _id '{}' occurs twice; expected every id once", rows.place(row),
                       id);
    found.ids.push_back(std::move(id));
    found.texts.emplace_back(texts.texts[row]);
  }
  return found;
}

// Whether a judgement counts; a file without scores has relevant pairs alone.
bool counts(const data::Column* score, std::size_t row) {
  if (score == nullptr) return true;
  if (score->kind == data::Column::Kind::kInteger) return score->integers[row] > 0;
  if (score->kind == data::Column::Kind::kNumber) return score->numbers[row] > 0;
  return true;
}

std::size_t known(const data::Rows& rows, const data::Column& column, std::size_t row,
                  const Index& index, const std::filesystem::path& file) {
  const std::string id = id_at(rows, column, row);
  const auto found = index.find(id);
  if (found == index.end()) {
    raise<DataError>("{}: {}: found '{}', expected an _id of {}", rows.place(row), column.name, id,
                     file.string());
  }
  return found->second;
}

}  // namespace

RetrievalData read_retrieval_data(const RetrievalFiles& files) {
  Texts documents = read_texts(files.corpus, true);
  const Texts queries = read_texts(files.queries, false);
  const data::Rows rows = data::read_rows(std::vector{files.qrels});
  const data::Column& query_ids = column_of(rows, "query-id");
  const data::Column& document_ids = column_of(rows, "corpus-id");
  std::optional<data::Column> score;
  if (const data::Column* given = rows.find("score")) {
    score = *given;
    if (rows.untyped()) data::infer_type(*score);
  }
  std::vector<std::unordered_set<std::size_t>> relevant(queries.ids.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!counts(score ? &*score : nullptr, row)) continue;
    relevant[known(rows, query_ids, row, queries.index, files.queries)].insert(
        known(rows, document_ids, row, documents.index, files.corpus));
  }
  RetrievalData data;
  data.document_ids = std::move(documents.ids);
  data.documents = std::move(documents.texts);
  for (std::size_t query = 0; query < relevant.size(); ++query) {
    if (relevant[query].empty()) {
      ++data.queries_left_out;
      continue;
    }
    data.query_ids.push_back(queries.ids[query]);
    data.queries.push_back(queries.texts[query]);
    data.relevant.push_back(std::move(relevant[query]));
  }
  if (data.queries.empty())
    raise<DataError>("{}: found no query with a relevant document, expected at least one",
                     files.qrels.string());
  return data;
}

}  // namespace tandem::tasks::embedding
