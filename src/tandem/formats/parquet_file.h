// Reads Parquet files, which is what the Hub keeps data sets as.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tandem/formats/table.h"

namespace tandem::formats {

// The Parquet file in `bytes`, which must outlive the source. next() gives a row group at a time.
//
// Read are byte arrays as texts, int32 and int64, structs and lists of any nesting (three-level
// lists, and the older two-level ones) with nulls; pages of version 1 and 2, plain, dictionary and
// delta encodings, Snappy, Zstandard, gzip or no compression; page checksums are verified. Columns
// of other types are not read. DataError: other encodings and codecs, encryption, anything that
// contradicts the file's own metadata, and row groups of more than 16 million values or 1 GiB of
// text (a dictionary lets a small file repeat a long text).
std::unique_ptr<TableSource> open_parquet(std::span<const std::byte> bytes);

}  // namespace tandem::formats
