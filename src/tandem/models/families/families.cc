// The tables of families.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tandem/models/encoder/family.h"

namespace tandem::models {

namespace {

constexpr std::array kFamilies = {&kBert,       &kDebertaV2, &kDistilBert, &kElectra,
                                  &kModernBert, &kMpnet,     &kRoberta,    &kXlmRoberta};

constexpr std::array kDecoderFamilies = {&kGpt2, &kLlama, &kQwen3};

}  // namespace

std::span<const Family* const> families() { return kFamilies; }
std::span<const Family* const> decoder_families() { return kDecoderFamilies; }

std::vector<const Family*> all_families() {
  std::vector<const Family*> all(kFamilies.begin(), kFamilies.end());
  all.insert(all.end(), kDecoderFamilies.begin(), kDecoderFamilies.end());
  return all;
}

std::string word_embeddings_name(const Family& family) {
  return fmt::format("{}{}{}.weight", family.base_prefix, family.embeddings.prefix,
                     family.embeddings.word);
}

const Family* find_family(std::string_view model_type, std::span<const Family* const> table) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Family* family) {
    return family->model_type == model_type;
  });
  return found == table.end() ? nullptr : *found;
}

}  // namespace tandem::models
