#include "tandem/core/own_program.h"

#include <sys/auxv.h>
#include <sys/prctl.h>

#include <system_error>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLink = "/proc/self/exe";
constexpr const char* kLoader = "ld-linux-x86-64.so.2";

// The file that the kernel executed: the program, or the loader of a portable archive.
fs::path executed_file() {
  std::error_code error;
  fs::path path = fs::read_symlink(kLink, error);
  if (!error && fs::exists(path, error)) return path;
  const auto* given = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT
  return given == nullptr || !fs::exists(given, error) ? fs::path() : fs::path(given);
}

// Directory of a portable archive's program and loader, or empty. Without /proc the loader reports
// the program's file as the executed one.
fs::path portable_directory() {
  const fs::path directory = executed_file().parent_path();
  std::error_code error;
  return fs::exists(directory / kLoader, error) && fs::exists(directory / "tandem", error)
             ? directory
             : fs::path();
}

}  // namespace

fs::path own_program() {
  const fs::path directory = portable_directory();
  if (!directory.empty()) return directory.parent_path().parent_path() / "bin" / "tandem";
  // The link leads to the program even after its file is replaced.
  std::error_code error;
  return fs::exists(kLink, error) ? fs::path(kLink) : executed_file();
}

fs::path own_binary() {
  const fs::path directory = portable_directory();
  return directory.empty() ? own_program() : directory / "tandem";
}

void name_own_process() {
  if (!portable_directory().empty()) ::prctl(PR_SET_NAME, "tandem");
}

}  // namespace tandem
