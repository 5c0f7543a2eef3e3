#include "tandem/core/own_program.h"

#include <sys/auxv.h>
#include <sys/stat.h>

namespace tandem {

std::filesystem::path own_program() {
  constexpr const char* kLink = "/proc/self/exe";
  struct stat info {};
  if (::stat(kLink, &info) == 0) return kLink;
  // The kernel puts it behind the environment of a new program.
  const auto* path = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT
  if (path == nullptr || ::stat(path, &info) != 0) return {};
  return path;
}

}  // namespace tandem
