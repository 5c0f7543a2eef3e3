#include "apps/command/own_path.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "tandem/core/own_program.h"

namespace tandem::apps {

std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::canonical(own_program(), error);
  return error ? "tandem" : path.string();
}

std::string shown_program(const Environment& environment) {
  const std::string own = own_path();
  const std::string path = environment.get("PATH").value_or("");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::filesystem::path found =
        std::filesystem::path(path.substr(begin, end - begin)) / "tandem";
    std::error_code error;
    // The first one is what a shell starts.
    if (begin < end && std::filesystem::exists(found, error))
      return std::filesystem::equivalent(found, own, error) ? "tandem" : own;
    begin = end + 1;
  }
  return own;
}

}  // namespace tandem::apps
