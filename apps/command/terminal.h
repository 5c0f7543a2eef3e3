// The terminal that a stream may be connected to.
#pragma once

#include <cstddef>
#include <optional>

namespace tandem::apps {

// Columns of the terminal at `descriptor`, or nothing where it is not a terminal (a file, a pipe,
// mpirun). A terminal of unknown size counts as one of 80.
std::optional<int> terminal_columns(int descriptor);

// The column at which text for people folds: that of the terminal, at most kLineColumns;
// kLineColumns where `descriptor` is not a terminal.
std::size_t fold_columns(int descriptor);

// Whether escape sequences may be sent to `descriptor`: it is a terminal, and TERM is not "dumb".
bool takes_escapes(int descriptor);

}  // namespace tandem::apps
