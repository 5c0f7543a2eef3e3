#include "tandem/text/blanks.h"

#include <algorithm>

#include "tandem/text/bpe.h"
#include "tandem/text/character_table.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

bool is_blank(char32_t c) { return c == byte_symbol(' ') || is_white_space(c); }

}  // namespace

Blanks blanks_of(std::string_view token) {
  Blanks blanks;
  bool only_blanks = true;
  for (std::size_t at = 0; at < token.size();) {
    const bool blank = is_blank(next_code_point(token, at));
    only_blanks = only_blanks && blank;
    blanks.leading += only_blanks;
    blanks.trailing = blank ? blanks.trailing + 1 : 0;
  }
  return blanks;
}

void trim_blanks(Blanks blanks, bool first_with_prefix_space, Span& span) {
  if (blanks.leading == 1 && first_with_prefix_space) blanks.leading = 0;
  span.begin = std::min(span.begin + blanks.leading, span.end);
  if (span.end >= blanks.trailing) span.end = std::max(span.end - blanks.trailing, span.begin);
}

}  // namespace tandem::text
