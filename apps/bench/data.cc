#include "apps/bench/data.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "tandem/core/error.h"

namespace tandem::apps::bench {
namespace {

struct NamedModel {
  std::string_view name;
  const models::Family* family;
  std::size_t layers, hidden, heads;
  std::size_t embedding = 0;     // embedding size of ELECTRA
  std::size_t vocabulary = 0;    // 0: the family's
  std::size_t intermediate = 0;  // 0: 4 hidden
};

constexpr NamedModel kModels[] = {
    {"minilm", &models::kBert, 6, 384, 12},
    {"distilbert", &models::kDistilBert, 6, 768, 12},
    {"bert-base", &models::kBert, 12, 768, 12},
    {"bert-large", &models::kBert, 24, 1024, 16},
    {"deberta-v3-xsmall", &models::kDebertaV2, 12, 384, 6},
    {"deberta-v3-small", &models::kDebertaV2, 6, 768, 12},
    {"deberta-v3-base", &models::kDebertaV2, 12, 768, 12},
    {"deberta-v3-large", &models::kDebertaV2, 24, 1024, 16},
    {"modernbert-base", &models::kModernBert, 22, 768, 12, 0, 0, 1152},
    {"modernbert-large", &models::kModernBert, 28, 1024, 16, 0, 0, 2624},
    {"mpnet-base", &models::kMpnet, 12, 768, 12},
    {"roberta-base", &models::kRoberta, 12, 768, 12},
    {"xlm-roberta-base", &models::kXlmRoberta, 12, 768, 12, 0, 250002},
    {"electra-small", &models::kElectra, 12, 256, 4, 128},
    {"electra-base", &models::kElectra, 12, 768, 12, 768}};

using Quantiles = std::array<std::uint32_t, 24>;

constexpr Quantiles kSquadLengths = {62,  130, 183, 274, 107, 158, 225, 202, 145, 191, 305, 115,
                                     166, 241, 93,  137, 80,  368, 123, 176, 259, 100, 152, 210};

constexpr Quantiles kSst2Lengths = {6,  22, 38, 21, 41, 10, 33, 14, 24, 25, 16, 30,
                                    23, 19, 27, 8,  48, 28, 18, 17, 35, 12, 31, 13};

struct NamedLengths {
  std::string_view name;
  const Quantiles* quantiles;  // null: all as long as the batch is wide
};

constexpr NamedLengths kLengths[] = {
    {"padded", nullptr}, {"squad", &kSquadLengths}, {"sst2", &kSst2Lengths}};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const NamedModel& model : kModels) names.emplace_back(model.name);
  return names;
}

models::ModelConfig named_model(std::string_view name) {
  const auto* found = std::find_if(std::begin(kModels), std::end(kModels),
                                   [&](const NamedModel& model) { return model.name == name; });
  if (found == std::end(kModels)) {
    raise<InvalidArgument>("there is no model '{}'; there are {}", name,
                           fmt::join(model_names(), ", "));
  }
  models::ModelConfig config = models::ModelConfig::defaults(*found->family);
  config.num_hidden_layers = found->layers;
  config.hidden_size = found->hidden;
  config.num_attention_heads = found->heads;
  config.intermediate_size = found->intermediate == 0 ? 4 * found->hidden : found->intermediate;
  config.embedding_size = found->embedding;
  if (found->vocabulary > 0) config.vocab_size = found->vocabulary;
  if (config.family->positions == nn::Positions::kTokens) {
    config.max_position_embeddings = 514;
    config.type_vocab_size = 1;
  }
  return config;
}

models::ModelConfig model_of(const std::string& name,
                             std::span<const models::Family* const> known) {
  for (const std::string& one : model_names()) {
    if (name == one) return named_model(name);
  }
  if (!std::filesystem::is_directory(name)) {
    raise<ConfigError>("--model '{}' is neither a directory nor one of {}", name,
                       fmt::join(model_names(), ", "));
  }
  return models::ModelConfig::load(name, known);
}

std::vector<std::string> length_names() {
  std::vector<std::string> names;
  for (const NamedLengths& lengths : kLengths) names.emplace_back(lengths.name);
  return names;
}

std::vector<std::uint32_t> named_lengths(std::string_view name, std::size_t count,
                                         std::size_t seq) {
  const auto* found = std::find_if(std::begin(kLengths), std::end(kLengths),
                                   [&](const NamedLengths& row) { return row.name == name; });
  if (found == std::end(kLengths)) {
    raise<InvalidArgument>("there are no lengths '{}'; there are {}", name,
                           fmt::join(length_names(), ", "));
  }
  std::vector<std::uint32_t> lengths(count, static_cast<std::uint32_t>(seq));
  if (found->quantiles == nullptr) return lengths;
  for (std::size_t i = 0; i < count; ++i) {
    lengths[i] = std::min(lengths[i], (*found->quantiles)[i % found->quantiles->size()]);
  }
  return lengths;
}

Batch::Batch(const std::vector<std::uint32_t>& lengths) : row_begin_{0}, key_count_(lengths) {
  for (const std::uint32_t length : lengths) {
    row_begin_.push_back(row_begin_.back() + length);
    sample_.push_back(sample_.size());
  }
}

double Batch::pairs() const {
  double pairs = 0;
  for (const std::uint32_t keys : key_count_) pairs += static_cast<double>(keys) * keys;
  return pairs;
}

}  // namespace tandem::apps::bench
