#include "tandem/hub/split_names.h"

#include <algorithm>

namespace tandem::hub {

std::string_view played_by(const SplitNames& names, std::string_view split) {
  if (std::find(names.removed.begin(), names.removed.end(), split) != names.removed.end())
    return {};
  const std::pair<std::string_view, const std::optional<std::string>&> parts[] = {
      {"train", names.train}, {"validation", names.validation}, {"test", names.test}};
  for (const auto& [part, name] : parts) {
    if (name == split) return part;
  }
  for (const auto& [part, name] : parts) {
    if (split == part && name) return {};
  }
  return split;
}

}  // namespace tandem::hub
