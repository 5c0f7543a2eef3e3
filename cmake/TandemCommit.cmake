# Writes the commit of the checkout in SOURCE into the header OUTPUT, and leaves the file alone
# where it has it already: a build without a new commit compiles nothing again. A source archive
# names its commit here (.gitattributes); "unknown" elsewhere.
set(archived "$Format:%H$")
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=-modified --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT EXISTS ${SOURCE}/.git)
  set(commit unknown)
  if(archived MATCHES "^[0-9a-f]+$")
    string(SUBSTRING ${archived} 0 12 commit)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once

#include <string_view>

namespace tandem::apps {

inline constexpr std::string_view kCommit = "@commit@";

}  // namespace tandem::apps
]] @ONLY)
