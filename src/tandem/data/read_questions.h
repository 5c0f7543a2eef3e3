// Reads question files in the forms that people have: JSON, Arrow, Parquet and CSV.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "tandem/data/question_example.h"

namespace tandem::data {

struct ReadOptions {
  // Evaluation and prediction need ids, each once, because answers are found by them. Training does
  // not look at them: a record without an id gets its index.
  bool require_id = true;
  bool require_answers = true;  // false: a record without answers is a question without answer
  // How many questions the files hold together, where that is known from elsewhere: another number
  // is an error.
  std::optional<std::size_t> num_questions = std::nullopt;
};

// The endings of the files that read_questions() can read, with their dots.
std::span<const std::string_view> question_file_extensions();
// Whether a file's name ends with one of them.
bool is_question_file(const std::filesystem::path& path);

// The questions of a file, in file order. The ending of its name decides what it is; with another
// ending the content is taken for JSON.
//
// .json, .jsonl: the form is found by looking at the content:
//   * raw SQuAD: {"data": [{"title", "paragraphs": [{"context", "qas": [QUESTION]}]}]} with
//     QUESTION = {"id", "question", "answers": [{"text", "answer_start"}], "is_impossible"}.
//     Titles, questions and answer texts are stripped of white space and answer_start is kept, as
//     Hugging Face's squad loaders do; the context stays as it is, since answer_start counts in it
//     (datasets#2585).
//   * flat rows: {"data": [ROW]} with
//     ROW = {"id", "title", "context", "question", "answers": {"text": [], "answer_start": []}}.
//   * a bare list of such rows.
//   * JSON lines: one such row per line; blank lines are skipped.
// .arrow: a stream of record batches as `datasets` caches and save_to_disk() have it, or an Arrow
//   file (arrow_stream.h).
// .parquet: as the Hub has it (parquet_file.h).
// .csv: the first line names the columns; answers are JSON (csv_source.h).
// .gz or .zst may follow: a compressed file is read as its content (compressed_file.h).
//
// Columns of rows are found by name; as in run_qa.py a missing `question`, `context` or `answers`
// is the first, second or third column (of the first row). Answers are a struct of two lists or a
// list of structs, or either as JSON text. Ids stay strings; integers become digits.
//
// Throws DataError that names the file and the line and byte, or the record and its id: broken
// JSON, text that is not UTF-8, a missing key, a wrong type, `text` and `answer_start` of different
// length, an answer outside of its context, an id that occurs twice where ids are required, no
// question at all. Throws IoError if
// the file cannot be read.
QuestionSet read_questions(const std::filesystem::path& path, const ReadOptions& options = {});

// The questions of several files that are parts of one set, one file after the other: the shards of
// a data set. At least one path.
QuestionSet read_questions(std::span<const std::filesystem::path> paths,
                           const ReadOptions& options = {});

// The questions of a file that is in memory. `name` stands in messages, and its ending decides what
// the file is. `content` needs to live only during the call.
QuestionSet read_questions(std::string_view name, std::span<const std::byte> content,
                           const ReadOptions& options = {});

}  // namespace tandem::data
