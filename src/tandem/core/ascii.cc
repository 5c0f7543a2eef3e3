#include "tandem/core/ascii.h"

namespace tandem {

std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::string> names_of_list(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view name : split(list, ',')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

}  // namespace tandem
