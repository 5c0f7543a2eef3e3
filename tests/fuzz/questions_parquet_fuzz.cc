// Parquet files.
#include "fuzz/read_questions_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Limit of ReadBudget: decompressed bytes, and values of some ten bytes each.
  return tandem::fuzz::read_questions("questions.parquet", data, size,
                                      2000 * size + (std::size_t{128} << 20));
}
