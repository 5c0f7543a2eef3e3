// The marks that editors and spreadsheets put in front of a text.
#pragma once

#include <string_view>

namespace tandem::text {

// `bytes` without the byte order mark of UTF-8. Throws DataError that names the encoding when the
// text is UTF-16 or UTF-32, with a mark or without.
std::string_view without_byte_order_mark(std::string_view bytes);

}  // namespace tandem::text
