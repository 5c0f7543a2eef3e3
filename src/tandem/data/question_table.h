// From the rows of a table to questions.
#pragma once

#include "tandem/data/read_questions.h"
#include "tandem/formats/table.h"

namespace tandem::data {

// Adds the questions of all rows to `builder`. Throws DataError that names the row and its id, but
// not the file.
void read_table_questions(formats::TableSource& source, const ReadOptions& options,
                          QuestionSet::Builder& builder);

}  // namespace tandem::data
