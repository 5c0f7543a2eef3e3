// Filters, tests and methods of Jinja that templates of conversations use. Internal to chat.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/chat/jinja_syntax.h"

namespace tandem::text {

// Arguments of a call: those by position, then those with a name.
struct JinjaArguments {
  std::vector<JinjaValue> values;
  std::vector<std::string> keywords;  // names of the last values

  std::size_t positional() const;  // how many have no name
  // The argument at the position or with the name; null: it is not there.
  const JinjaValue* find(std::size_t position, std::string_view name) const;
};

// Each throws DataError for a name that is not supported, and for a value of another kind.
JinjaValue apply_filter(std::string_view name, const JinjaValue& value,
                        const JinjaArguments& arguments);
bool apply_test(std::string_view name, const JinjaValue& value, const JinjaArguments& arguments);
JinjaValue call_method(std::string_view name, const JinjaValue& value,
                       const JinjaArguments& arguments);

}  // namespace tandem::text
