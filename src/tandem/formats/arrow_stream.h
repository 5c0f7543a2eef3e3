// Reads Arrow's IPC streams, which is what Hugging Face `datasets` caches and saves data sets as.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tandem/formats/table.h"

namespace tandem::formats {

// The stream in `bytes`, which must outlive the source: messages of a schema and record batches
// with little-endian buffers (Arrow columnar format 1, with and without the marker that 0.15
// introduced).
// The format lets a stream end without a mark, but every writer that is closed leaves one, so a
// stream without is taken for one that was cut between two messages and refused.
// An Arrow file ("ARROW1", Feather version 2) is such a stream between two marks and is read too.
//
// Read are utf8 and large_utf8, integers of 8 to 64 bits, list, large_list and struct, of any
// nesting, with nulls; other columns are stepped over. Bodies may be compressed with Zstandard.
// DataError: LZ4, dictionary-encoded columns that are wanted, unions, views, lists of other kinds,
// big-endian data, and anything that points outside of its buffer.
std::unique_ptr<TableSource> open_arrow(std::span<const std::byte> bytes);

}  // namespace tandem::formats
