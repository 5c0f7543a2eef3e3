#include "tandem/core/cpu_model.h"

#include "tandem/core/file.h"

namespace tandem {

std::string cpu_model() {
  const std::string text = read_file_if_exists("/proc/cpuinfo").value_or("");
  const std::size_t line = text.find("model name");
  const std::size_t begin = line == std::string::npos ? line : text.find(": ", line);
  if (begin == std::string::npos) return "unknown";
  return text.substr(begin + 2, text.find('\n', begin) - begin - 2);
}

}  // namespace tandem
