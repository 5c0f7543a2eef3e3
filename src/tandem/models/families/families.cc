// The table of families.
#include <algorithm>
#include <array>

#include "tandem/models/encoder/family.h"

namespace tandem::models {

namespace {

constexpr std::array kFamilies = {&kBert,  &kDistilBert, &kElectra,   &kModernBert,
                                  &kMpnet, &kRoberta,    &kXlmRoberta};

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family* find_family(std::string_view model_type, std::span<const Family* const> table) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Family* family) {
    return family->model_type == model_type;
  });
  return found == table.end() ? nullptr : *found;
}

}  // namespace tandem::models
