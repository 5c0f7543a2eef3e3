// White space at the ends of a token, which RobertaProcessing takes out of its offsets. Internal to
// text.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/text/tokenizer.h"

namespace tandem::text {

// In characters.
struct Blanks {
  std::uint32_t leading = 0, trailing = 0;
};

// Those of a token as the vocabulary writes it, or of the text of an added token.
Blanks blanks_of(std::string_view token);

// The span without the blanks. One leading blank stays in the span of the first token of a text if
// the tokenizer puts a space in front of texts, because the text does not have that space.
void trim_blanks(Blanks blanks, bool first_with_prefix_space, Span& span);

}  // namespace tandem::text
