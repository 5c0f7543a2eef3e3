// How Parquet writes numbers and texts into pages (Encodings.md of the format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/formats/checked_bytes.h"
#include "tandem/formats/read_budget.h"

namespace tandem::formats {

// The numbers of Parquet's encodings.
enum ParquetEncoding : int {
  kPlain = 0,
  kPlainDictionary = 2,  // the old name of kRleDictionary
  kRle = 3,
  kDeltaBinaryPacked = 5,
  kDeltaLengthByteArray = 6,
  kDeltaByteArray = 7,
  kRleDictionary = 8,
};

// Decoders append exactly `count` values to `out`, or throw DataError.

// The hybrid of run lengths and bit-packed groups, of numbers of `bit_width` (0 to 32) bits.
void decode_rle(CheckedBytes data, int bit_width, std::size_t count,
                std::vector<std::uint32_t>& out);
// Integers of `width` bytes (2, 4 or 8), one after another.
void decode_plain_integers(CheckedBytes data, std::size_t width, std::size_t count,
                           std::vector<std::int64_t>& out);
// Texts that each follow their length. They lie in `data`.
void decode_plain_texts(CheckedBytes data, std::size_t count, std::vector<std::string_view>& out);
// Differences in blocks of bit-packed numbers. Returns the bytes that were read.
std::size_t decode_delta_integers(CheckedBytes data, std::size_t count,
                                  std::vector<std::int64_t>& out);
// All lengths, then all texts. They lie in `data`.
void decode_delta_length_texts(CheckedBytes data, std::size_t count,
                               std::vector<std::string_view>& out);
// Each text begins with a part of the one before it. The texts lie in `memory`,
// and are taken from `budget`.
void decode_delta_texts(CheckedBytes data, std::size_t count, std::deque<std::string>& memory,
                        ReadBudget& budget, std::vector<std::string_view>& out);

}  // namespace tandem::formats
