// JSON and JSON lines in all four forms.
#include "fuzz/read_questions_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A parser of 14 bytes for each of the text in addition to a copy of it; texts are kept in chunks
  // of a megabyte.
  return tandem::fuzz::read_questions("questions.json", data, size,
                                      64 * size + (std::size_t{2} << 20));
}
