#include "tandem/tasks/ranking/retrieval_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/data/read_rows.h"

namespace tandem::tasks::ranking {
namespace {

using data::Rows;
using formats::Column;

Rows read_columns(const std::filesystem::path& path, std::vector<std::string> required,
                  const std::string& optional) {
  data::RowOptions options;
  options.choose = [&](std::span<const std::string> names) {
    for (const std::string& name : required)
      if (std::find(names.begin(), names.end(), name) == names.end())
        raise<DataError>("'{}': found the columns {}; expected {}", path.string(),
                         fmt::join(names, ", "), fmt::join(required, " and "));
    std::vector<std::string> chosen = required;
    if (std::find(names.begin(), names.end(), optional) != names.end()) chosen.push_back(optional);
    return chosen;
  };
  return data::read_rows(std::span(&path, 1), options);
}

// A text or a number of one row, or of one element of a list.
std::string value_at(const Column& column, std::size_t row, const std::string& where) {
  if (column.is_null(row)) raise<DataError>("{}: '{}' is null", where, column.name);
  if (column.kind == Column::Kind::kText) return std::string(column.texts[row]);
  if (column.kind == Column::Kind::kInteger) return std::to_string(column.integers[row]);
  raise<DataError>("{}: '{}' has the type {}; expected text or an integer", where, column.name,
                   column.type);
}

std::vector<std::string> values_at(const Column& column, std::size_t row,
                                   const std::string& where) {
  if (column.kind != Column::Kind::kList || column.is_null(row))
    return {value_at(column, row, where)};
  std::vector<std::string> values;
  for (std::size_t i = column.begins[row]; i < column.begins[row + 1]; ++i)
    values.push_back(value_at(column.children[0], i, where));
  return values;
}

// --- corpus and queries ---

struct IndexedTexts {
  RetrievalTexts texts;
  IdNumbers numbers;
};

void note_if(std::size_t count, const std::string& text, std::vector<std::string>& notes) {
  if (count > 0) notes.push_back(text);
}

IndexedTexts read_texts(const std::filesystem::path& path, std::vector<std::string>& notes) {
  const Rows rows = read_columns(path, {"_id", "text"}, "");
  const Column &ids = *rows.find("_id"), &texts = rows.texts("text");
  IndexedTexts read;
  std::vector<std::size_t> row_of;
  std::size_t empty = 0, repeated = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::string id = value_at(ids, row, rows.location(row));
    // An empty field of a TSV file is null.
    if (texts.is_null(row) && !rows.untyped())
      raise<DataError>("{}: the text is null; expected a text", rows.location(row));
    if (texts.is_null(row) || texts.texts[row].empty()) {
      ++empty;
      continue;
    }
    const auto [at, is_new] = read.numbers.try_emplace(id, row_of.size());
    if (!is_new) {
      if (read.texts.texts[at->second] != texts.texts[row])
        raise<DataError>("{}: the id '{}' stands for another text than in {}; expected one text",
                         rows.location(row), id, rows.location(row_of[at->second]));
      ++repeated;
      continue;
    }
    row_of.push_back(row);
    read.texts.ids.push_back(std::move(id));
    read.texts.texts.emplace_back(texts.texts[row]);
  }
  note_if(empty, fmt::format("'{}': {} rows with an empty text are left out", path.string(), empty),
          notes);
  note_if(repeated, fmt::format("'{}': {} repeated rows are left out", path.string(), repeated),
          notes);
  return read;
}

// --- judgements ---

bool is_relevant(const Column* score, std::size_t row, const std::string& where) {
  if (score == nullptr || score->is_null(row)) return true;
  if (score->kind == Column::Kind::kInteger) return score->integers[row] > 0;
  if (score->kind == Column::Kind::kNumber) return score->numbers[row] > 0;
  raise<DataError>("{}: the score is not a number", where);
}

// Judgements that name an id that no text has.
struct UnknownIds {
  std::size_t count = 0;
  std::string first;

  void add(std::string_view kind, const std::string& id, const std::string& where) {
    if (count++ == 0) first = fmt::format("the first is {} '{}' in {}", kind, id, where);
  }
};

class Judgements {
 public:
  Judgements(const IdNumbers& queries, const IdNumbers& corpus)
      : queries_(queries), corpus_(corpus), relevant_(queries.size()), missing_(queries.size()) {}

  void add(const std::string& query, const std::string& document, const std::string& where) {
    const auto of_query = queries_.find(query);
    if (of_query == queries_.end()) return unknown_queries_.add("query", query, where);
    const auto of_document = corpus_.find(document);
    if (of_document != corpus_.end()) {
      relevant_[of_query->second].documents.push_back(of_document->second);
      return;
    }
    missing_[of_query->second].push_back(document);
    unknown_documents_.add("document", document, where);
  }
  // Removes duplicates. Returns the relevant documents of each query.
  std::vector<Relevant> finish(const std::filesystem::path& path, std::vector<std::string>& notes) {
    for (std::size_t query = 0; query < relevant_.size(); ++query) {
      keep_distinct(relevant_[query].documents);
      keep_distinct(missing_[query]);
      relevant_[query].unknown = missing_[query].size();
    }
    note_if(unknown_queries_.count,
            fmt::format("'{}': {} judgements name a query that has no text and are left out; {}",
                        path.string(), unknown_queries_.count, unknown_queries_.first),
            notes);
    note_if(unknown_documents_.count,
            fmt::format("'{}': {} judgements name a document that the corpus lacks and count as "
                        "never found; {}",
                        path.string(), unknown_documents_.count, unknown_documents_.first),
            notes);
    return std::move(relevant_);
  }

 private:
  template <typename T>
  static void keep_distinct(std::vector<T>& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }

  const IdNumbers& queries_;
  const IdNumbers& corpus_;
  std::vector<Relevant> relevant_;
  std::vector<std::vector<std::string>> missing_;
  UnknownIds unknown_queries_, unknown_documents_;
};

// Calls take(query, document, place in the file) for every relevant document.
void each_judgement(
    const std::filesystem::path& path,
    FunctionRef<void(const std::string&, const std::string&, const std::string&)> take) {
  Rows rows = read_columns(path, {"query-id", "corpus-id"}, "score");
  std::optional<Column> score;
  if (const Column* found = rows.find("score")) {
    score = *found;
    if (rows.untyped()) data::infer_type(*score);
  }
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::string where = rows.location(row);
    if (!is_relevant(score ? &*score : nullptr, row, where)) continue;
    const std::string query = value_at(*rows.find("query-id"), row, where);
    for (const std::string& document : values_at(*rows.find("corpus-id"), row, where))
      take(query, document, where);
  }
}

std::vector<Relevant> read_judgements(const std::filesystem::path& path, const IdNumbers& queries,
                                      const IdNumbers& corpus, std::vector<std::string>& notes) {
  Judgements judgements(queries, corpus);
  each_judgement(path, [&](const std::string& query, const std::string& document,
                           const std::string& where) { judgements.add(query, document, where); });
  return judgements.finish(path, notes);
}

}  // namespace

RetrievalSet read_retrieval_set(const RetrievalFiles& files) {
  std::vector<std::string> notes;
  IndexedTexts corpus = read_texts(files.corpus, notes);
  RetrievalSet set = read_judged_queries(files, corpus.numbers);
  set.corpus = std::move(corpus.texts);
  set.notes.insert(set.notes.begin(), notes.begin(), notes.end());
  return set;
}

IdNumbers judged_documents(const std::filesystem::path& qrels) {
  IdNumbers ids;
  each_judgement(qrels, [&](const std::string&, const std::string& document, const std::string&) {
    ids.emplace(document, 0);
  });
  return ids;
}

RetrievalSet read_judged_queries(const RetrievalFiles& files, const IdNumbers& corpus) {
  RetrievalSet set;
  IndexedTexts queries = read_texts(files.queries, set.notes);
  std::vector<Relevant> relevant = read_judgements(files.qrels, queries.numbers, corpus, set.notes);
  for (std::size_t query = 0; query < relevant.size(); ++query) {
    if (relevant[query].documents.empty() && relevant[query].unknown == 0) continue;
    set.queries.ids.push_back(std::move(queries.texts.ids[query]));
    set.queries.texts.push_back(std::move(queries.texts.texts[query]));
    set.relevant.push_back(std::move(relevant[query]));
  }
  const std::size_t dropped = relevant.size() - set.relevant.size();
  if (set.relevant.empty())
    raise<DataError>("'{}': no query of '{}' has a relevant document; expected at least one",
                     files.qrels.string(), files.queries.string());
  note_if(dropped,
          fmt::format("'{}': {} of {} queries have no relevant document and are left out",
                      files.queries.string(), dropped, relevant.size()),
          set.notes);
  return set;
}

BreakTie greater_id_first(const RetrievalTexts& corpus) {
  return [&ids = corpus.ids](std::size_t a, std::size_t b) { return ids[a] > ids[b]; };
}

std::vector<QueryHits> judged_hits(const RetrievalSet& set,
                                   std::span<const std::vector<Hit>> hits) {
  std::vector<QueryHits> judged;
  for (std::size_t query = 0; query < hits.size(); ++query) {
    const Relevant& relevant = set.relevant[query];
    QueryHits of_query{{}, relevant.documents.size() + relevant.unknown};
    for (const Hit& hit : hits[query])
      of_query.is_relevant.push_back(
          std::binary_search(relevant.documents.begin(), relevant.documents.end(), hit.document));
    judged.push_back(std::move(of_query));
  }
  return judged;
}

}  // namespace tandem::tasks::ranking
