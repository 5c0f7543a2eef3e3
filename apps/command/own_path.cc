#include "apps/command/own_path.h"

#include <filesystem>

namespace tandem::apps {

std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "tandem" : path.string();
}

}  // namespace tandem::apps
