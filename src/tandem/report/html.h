// Text that stands in pages.
#pragma once

#include <string>
#include <string_view>

namespace tandem::report {

// The text with & < > " ' as entities: it may stand in HTML and in attributes.
std::string escape_html(std::string_view text);

}  // namespace tandem::report
