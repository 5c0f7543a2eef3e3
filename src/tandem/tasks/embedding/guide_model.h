// A second bi-encoder, which is not trained. It excludes texts of a batch from the negatives
// (GISTEmbedLoss).
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/models/heads/sentence_files.h"
#include "tandem/tasks/embedding/prompted_texts.h"
#include "tandem/tasks/piece_encoder.h"
#include "tandem/tasks/text_classification/text_features.h"
#include "tandem/text/tokenizer.h"

namespace tandem::tasks::embedding {

// Computes in f32, one piece at a time. Used by one thread.
class GuideModel {
 public:
  // Directories of the model and of its tokenizer. Throws what reading a model throws, and
  // ConfigError if a weight is missing.
  GuideModel(const std::filesystem::path& directory,
             const std::filesystem::path& tokenizer_directory);

  // Makes room for a piece; returns the bytes of it that batches of up to `tokens` tokens touch.
  std::size_t plan(std::size_t tokens);
  // Values of an embedding.
  std::size_t width() const { return model_.num_logits(0, 1); }
  // The texts as the guide's tokenizer cuts them.
  text_classification::TextFeatures features(const PromptedTexts& texts, ThreadPool& threads,
                                             FunctionRef<std::string(std::size_t)> location) const;
  // Overwrites `labels` [rows, columns, width] with the guide's embeddings of the texts `indices`
  // [columns, rows].
  void label(const kernels::Context& context, const TokenSequences& texts,
             std::span<const std::uint32_t> indices, std::size_t columns,
             std::vector<float>& labels);

 private:
  GuideModel(models::ModelConfig config, models::SentenceFiles files,
             const std::filesystem::path& directory,
             const std::filesystem::path& tokenizer_directory);

  models::SentenceFiles files_;
  text::Tokenizer tokenizer_;
  models::EncoderModel model_;
  std::size_t max_tokens_;
  Buffer weights_;
  PieceEncoder pieces_;
};

}  // namespace tandem::tasks::embedding
