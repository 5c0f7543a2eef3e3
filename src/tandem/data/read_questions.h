// Reads question files in the four JSON forms that people have.
#pragma once

#include <filesystem>

#include "tandem/data/question_example.h"

namespace tandem::data {

struct ReadOptions {
  bool require_id = true;  // evaluation and prediction need ids; without one a training record gets
                           // its index as id
  bool require_answers = true;  // false: a record without answers is a question without answer
};

// The questions of a file, in file order. The form is found by looking at the content:
//   * raw SQuAD: {"data": [{"title", "paragraphs": [{"context", "qas": [QUESTION]}]}]} with
//     QUESTION = {"id", "question", "answers": [{"text", "answer_start"}], "is_impossible"}.
//     Titles, questions and answer texts are stripped of white space and answer_start is kept, as
//     Hugging Face's squad loaders do; the context stays as it is, since answer_start counts in it
//     (datasets#2585).
//   * flat rows: {"data": [ROW]} with
//     ROW = {"id", "title", "context", "question", "answers": {"text": [], "answer_start": []}}.
//   * a bare list of such rows.
//   * JSON lines: one such row per line; blank lines are skipped.
// Columns of rows are found by name; as in run_qa.py a missing `question`, `context` or `answers`
// is the first, second or third column of the first row. Ids stay strings; integers become digits.
//
// Throws DataError that names the file and the line and byte, or the record and its id: broken
// JSON, text that is not UTF-8, a missing key, a wrong type, `text` and `answer_start` of different
// length, an answer outside of its context, a duplicate id, no question at all; a .csv file. Throws
// IoError if the file cannot be read.
QuestionSet read_questions(const std::filesystem::path& path, const ReadOptions& options = {});

}  // namespace tandem::data
