#include "tandem/job/arguments.h"

#include <fmt/format.h>

namespace tandem::job {

std::string Request::lines() const {
  std::string text;
  for (const auto& [name, value] : values.items()) {
    text += fmt::format("{}={}\n", name, value.is_null() ? "None" : value.dump());
  }
  return text;
}

}  // namespace tandem::job
