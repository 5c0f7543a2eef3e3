// Comma-separated values.
#include "fuzz/read_questions_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A column of one letter is a name and a field, in lists that grow; texts are kept in chunks of a
  // megabyte.
  return tandem::fuzz::read_questions("questions.csv", data, size,
                                      128 * size + (std::size_t{2} << 20));
}
