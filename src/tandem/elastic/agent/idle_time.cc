#include "tandem/elastic/agent/idle_time.h"

#include <fmt/format.h>

#include <sstream>
#include <string>

#include "tandem/core/file.h"

namespace tandem::elastic {

// proc(5): the name of the program is in brackets and may hold any character; of the fields behind
// it the 12th and 13th are the time in the program and in the kernel.
std::optional<std::uint64_t> processor_ticks(pid_t pid) {
  const auto text = read_file_if_exists(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = text ? text->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text->substr(name_end + 1));
  constexpr int kFieldsBefore = 11;
  std::string skipped;
  for (int field = 0; field < kFieldsBefore; ++field) fields >> skipped;
  std::uint64_t in_program = 0;
  std::uint64_t in_kernel = 0;
  if (!(fields >> in_program >> in_kernel)) return std::nullopt;
  return in_program + in_kernel;
}

}  // namespace tandem::elastic
