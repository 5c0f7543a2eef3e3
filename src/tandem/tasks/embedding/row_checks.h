// Rows that a loss can use, but that teach nothing or the wrong thing.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tandem/formats/table.h"

namespace tandem::tasks::embedding {

struct RowsToCheck {
  std::vector<const formats::Column*> texts;
  std::size_t count = 0;                             // rows, the first ones of the columns
  std::function<std::string(std::size_t)> location;  // location of a row, for messages
  bool has_labels = false;
};

// A warning for each kind of doubtful row, with the first such row and the number of them:
//   an empty text, or one of white space alone;
//   an anchor or a positive that is a negative of its own row (rows without labels);
//   columns whose names are in another order than the loss reads them (rows without labels).
std::vector<std::string> row_warnings(const RowsToCheck& rows);

}  // namespace tandem::tasks::embedding
