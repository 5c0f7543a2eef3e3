#include "tandem/tasks/ranking/corpus_reader.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/data/read_rows.h"
#include "tandem/formats/compressed_file.h"

namespace tandem::tasks::ranking {
namespace {

using formats::Column;

// The id or the text of a row.
std::string value_at(const Column& column, std::size_t row) {
  if (!column.is_null(row) && column.kind == Column::Kind::kText)
    return std::string(column.texts[row]);
  if (!column.is_null(row) && column.kind == Column::Kind::kInteger)
    return std::to_string(column.integers[row]);
  raise<DataError>("column \"{}\": found {}, expected a text or an integer", column.name,
                   column.is_null(row) ? "no value" : column.type);
}

// The result of read(), whose errors get the name of the file.
template <class Read>
auto from_file(const std::string& path, Read read) {
  try {
    return read();
  } catch (const DataError& error) {
    raise<DataError>("data file '{}': {}", path, error.what());
  }
}

std::vector<std::size_t> columns_of(const formats::TableSource& source) {
  const auto names = source.column_names();
  std::vector<std::size_t> columns;
  for (const char* wanted : {"_id", "text"}) {
    const auto found = std::find(names.begin(), names.end(), wanted);
    if (found == names.end())
      raise<DataError>("found no column \"{}\", expected _id and text", wanted);
    columns.push_back(static_cast<std::size_t>(found - names.begin()));
  }
  return columns;
}

}  // namespace

CorpusReader::CorpusReader(const std::filesystem::path& path)
    : path_(path.string()),
      file_(from_file(path_, [&] { return formats::map_uncompressed(path); })),
      source_(from_file(path_, [&] { return data::open_row_file(path, file_.bytes()); })),
      columns_(from_file(path_, [&] { return columns_of(*source_); })) {}

std::vector<Document> CorpusReader::next(std::size_t most) {
  return from_file(path_, [&] { return read(most); });
}

std::vector<Document> CorpusReader::read(std::size_t most) {
  std::vector<Document> documents;
  while (documents.size() < most) {
    if (used_ == table_.num_rows) {
      used_ = 0;
      if (!source_->next(columns_, table_)) {
        table_ = {};
        break;
      }
    }
    for (; used_ < table_.num_rows && documents.size() < most; ++used_) {
      try {
        Document one{value_at(table_.columns[0], used_), value_at(table_.columns[1], used_)};
        if (one.text.empty())
          ++left_out_;
        else
          documents.push_back(std::move(one));
      } catch (const DataError& error) {
        raise<DataError>("{}: {}", source_->location(used_), error.what());
      }
    }
  }
  return documents;
}

void DocumentIds::add(std::string_view id) {
  constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
  if (pending_.size() >= kPieceBytes) {
    file_.append(std::as_bytes(std::span(pending_)));
    pending_.clear();
  }
  pending_ += id;
  begins_.push_back(begins_.back() + id.size());
}

std::string DocumentIds::at(std::size_t document) const {
  const std::size_t begin = begins_[document], size = begins_[document + 1] - begin;
  if (begin >= file_.size()) return pending_.substr(begin - file_.size(), size);
  std::string id(size, '\0');
  file_.read_at(begin, std::as_writable_bytes(std::span(id)));
  return id;
}

}  // namespace tandem::tasks::ranking
