#include "apps/command/own_path.h"

#include <filesystem>
#include <system_error>

#include "tandem/core/own_program.h"

namespace tandem::apps {

std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::canonical(own_program(), error);
  return error ? "tandem" : path.string();
}

}  // namespace tandem::apps
