// The tables of families.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tandem/models/encoder/family.h"

namespace tandem::models {

namespace {

constexpr std::array kFamilies = {&kBert,       &kDebertaV2, &kDistilBert, &kElectra,
                                  &kModernBert, &kMpnet,     &kRoberta,    &kXlmRoberta};

constexpr std::array kDecoderFamilies = {&kGpt2, &kLlama, &kQwen2, &kQwen3};

constexpr auto kAllFamilies = [] {
  std::array<const Family*, kFamilies.size() + kDecoderFamilies.size()> all{};
  std::ranges::copy(kDecoderFamilies, std::ranges::copy(kFamilies, all.begin()).out);
  return all;
}();

}  // namespace

std::span<const Family* const> families() { return kFamilies; }
std::span<const Family* const> decoder_families() { return kDecoderFamilies; }
std::span<const Family* const> all_families() { return kAllFamilies; }

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
