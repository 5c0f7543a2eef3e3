#include "tandem/formats/table.h"

#include <simdjson.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/text/utf8.h"

namespace tandem::formats {

const Column* Column::field(std::string_view field_name) const {
  const auto found = std::find_if(children.begin(), children.end(),
                                  [&](const Column& child) { return child.name == field_name; });
  return found == children.end() ? nullptr : &*found;
}

void require_utf8(std::string_view text, FunctionRef<std::string()> where) {
  if (simdjson::validate_utf8(text.data(), text.size())) return;
  const std::size_t byte = text::find_invalid_utf8(text).value_or(0);
  raise<DataError>("{}: not UTF-8: byte {} of the text is 0x{:02x}", where(), byte,
                   static_cast<unsigned char>(text[byte]));
}

}  // namespace tandem::formats
