#include "tandem/tasks/token_classification/predictions_file.h"

namespace tandem::token_classification {

std::string predictions_text(std::span<const std::string> labels,
                             std::span<const std::uint32_t> tags,
                             std::span<const std::size_t> begins) {
  std::string text;
  for (std::size_t s = 0; s + 1 < begins.size(); ++s) {
    for (std::size_t i = begins[s]; i < begins[s + 1]; ++i) {
      if (i > begins[s]) text += ' ';
      text += labels[tags[i]];
    }
    text += '\n';
  }
  return text;
}

}  // namespace tandem::token_classification
