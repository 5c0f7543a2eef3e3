// JSON and JSON lines in all four forms.
#include "fuzz/read_questions_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return tandem::fuzz::read_questions("questions.json", data, size);
}
