// Comma-separated and tab-separated values as a table of texts.
#pragma once

#include <memory>
#include <string_view>

#include "tandem/formats/table.h"

namespace tandem::formats {

// The CSV in `text`, which must outlive the source, read as pandas and Python's csv module read it:
// commas, fields in double quotes where they hold a comma, a quote (doubled) or a line break, lines
// that end with \n, \r\n or \r, blank lines skipped, a byte order mark dropped. The first line
// names the columns. Every column is text; an empty field without quotes is null.
// DataError, with row (counted from 1 without the header) and column: another number of fields than
// the header has, a quote that is not closed, text behind a closing quote, text that is not UTF-8.
std::unique_ptr<TableSource> open_csv(std::string_view text);

// The same with a tab between fields. Quotes stand for themselves, as in the files that GLUE was
// published in, so no field holds a tab or a line break.
std::unique_ptr<TableSource> open_tsv(std::string_view text);

}  // namespace tandem::formats
