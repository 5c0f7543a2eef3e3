#include "tandem/tasks/embedding/guide_model.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/models/heads/embedding_head.h"
#include "tandem/models/pretrained/pretrained.h"

namespace tandem::tasks::embedding {
namespace {

models::ModelConfig config_of(const std::filesystem::path& directory) {
  return models::ModelConfig::load(directory, models::all_families());
}

}  // namespace

GuideModel::GuideModel(const std::filesystem::path& directory,
                       const std::filesystem::path& tokenizer_directory)
    : GuideModel(config_of(directory), models::read_sentence_files(directory, config_of(directory)),
                 directory, tokenizer_directory) {}

GuideModel::GuideModel(models::ModelConfig config, models::SentenceFiles files,
                       const std::filesystem::path& directory,
                       const std::filesystem::path& tokenizer_directory)
    : files_(std::move(files)),
      tokenizer_(text::Tokenizer::load(
          tokenizer_directory, {.add_prefix_space = {}, .lower_case = files_.do_lower_case})),
      model_(std::move(config),
             [this](const models::ModelConfig& of_model, nn::ParameterLayout& layout) {
               return models::make_embedding_head(files_, of_model, layout);
             }),
      max_tokens_(std::min({model_.config().max_tokens(), tokenizer_.model_max_length(),
                            files_.max_seq_length.value_or(model_.config().max_tokens())})),
      weights_(model_.layout().size() * sizeof(float)),
      pieces_(model_) {
  const models::LoadReport report = models::load_pretrained(
      directory, model_.config(), model_.layout(), weights_.as<float>(), {});
  if (report.newly_initialized.empty()) return;
  raise<ConfigError>("--guide: {} has no {}, expected a trained model", report.file.string(),
                     report.newly_initialized.front());
}

text_classification::TextFeatures GuideModel::features(
    const PromptedTexts& texts, ThreadPool& threads,
    FunctionRef<std::string(std::size_t)> location) const {
  auto features = text_classification::build_text_features(tokenizer_, texts.views(), {},
                                                           max_tokens_, threads, location);
  if (!files_.include_prompt) texts.leave_out_prompts(tokenizer_, features);
  return features;
}

std::size_t GuideModel::plan(std::size_t tokens) {
  const std::size_t room = std::max(PieceEncoder::kPieceTokens, max_tokens_);
  const std::size_t bytes = pieces_.plan({.kind = models::PassKind::kInference,
                                          .precision = nn::Precision::kFloat32,
                                          .tokens = room,
                                          .texts = PieceEncoder::kPieceTexts,
                                          .longest = max_tokens_,
                                          .keep = false});
  return bytes * std::min(tokens, room) / room;
}

void GuideModel::label(const kernels::Context& context, const TokenSequences& texts,
                       std::span<const std::uint32_t> indices, std::size_t columns,
                       std::vector<float>& labels) {
  if (!pieces_.planned()) plan(0);
  const std::vector<std::uint64_t> samples(indices.size(), 0);  // without dropout
  pieces_.forget();
  pieces_.load(texts, indices, samples);
  std::vector<float> found(indices.size() * width());
  pieces_.embed(context, {.f32 = weights_.as<const float>(), .bf16 = {}}, {}, found);
  labels.resize(found.size());
  const std::size_t rows = indices.size() / columns;
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t row = 0; row < rows; ++row) {
      std::copy_n(&found[(column * rows + row) * width()], width(),
                  &labels[(row * columns + column) * width()]);
    }
  }
}

}  // namespace tandem::tasks::embedding
