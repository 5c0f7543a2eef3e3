# Writes the commit of the checkout in SOURCE into the header OUTPUT, and leaves the file alone where it says so already: a build
# without a new commit compiles nothing again. "unknown" outside a checkout (a source archive).
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=-modified --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT EXISTS ${SOURCE}/.git)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once

#include <string_view>

namespace tandem::apps {

inline constexpr std::string_view kCommit = "@commit@";

}  // namespace tandem::apps
]] @ONLY)
