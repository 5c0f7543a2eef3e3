// A trained model in memory, ready for requests: it computes for `tandem ask`, `tandem predict` and
// `tandem serve`.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "apps/answering/common_begin.h"
#include "apps/answering/window_scheduler.h"
#include "tandem/core/buffer.h"
#include "tandem/core/env.h"
#include "tandem/core/thread_pool.h"
#include "tandem/hub/model_files.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/nn/int8_linear.h"
#include "tandem/nn/packed_linear.h"
#include "tandem/text/tokenizer.h"

namespace CLI {
class App;
}

namespace tandem::apps {

// The task that a model was trained for.
enum class Purpose { kQuestions, kTexts, kTokens, kEmbeddings, kGeneration };

// "question answering"
std::string_view name_of(Purpose purpose);
// The names of a model's labels by id. Where config.json has none there are two, LABEL_0 and
// LABEL_1, as in transformers.
std::vector<std::string> label_names(const models::ModelConfig& config);

// Which model, and how it computes.
struct ModelOptions {
  hub::ModelArguments files;
  bool bf16 = false;  // the encoder's products in bfloat16, as in training with --bf16
};

// The files of a model, found (and downloaded) but not read.
struct FoundModel {
  // sentence: those of sentence-transformers, too. known: the families that are accepted.
  FoundModel(const ModelOptions& options, const Environment& environment, bool sentence = false,
             std::span<const models::Family* const> known = models::families());

  // Whether the model continues texts.
  bool is_decoder() const;
  // The file of trained weights: another file is another model.
  std::filesystem::path weights() const;

  hub::ModelLocation location;
  models::ModelConfig config;
  nn::Precision precision;
};

// By the class that config.json names, or by the task of an adapter without a config.json of its
// own; nothing when it names another one, or none. Embeddings have no class of their own.
std::optional<Purpose> purpose_of(const FoundModel& found);

// Throws ConfigError: the model is for `purpose`, and the message names the command for it.
[[noreturn]] void refuse_other_purpose(const FoundModel& found, Purpose purpose);

class InferenceModel {
 public:
  // Throws what reading a model throws, and ConfigError when model and tokenizer do not belong
  // together, or when a weight is missing: the model was not trained for the purpose, and its
  // answers would be random. The number of threads is OMP_NUM_THREADS, else the available cores.
  InferenceModel(const FoundModel& found, Purpose purpose, const Environment& environment);
  // The same with a head of the caller's.
  InferenceModel(const FoundModel& found, Purpose purpose, const models::MakeHead& head,
                 const Environment& environment);

  // The logits of all sequences, one after another, without padding: [tokens, 2] for questions,
  // [labels] for each text, [tokens, labels] for tokens, [H of all poolings] for embeddings.
  // Several threads may ask at once: all sequences are computed side by side by one team of
  // threads, and rows that all sequences of a call begin with once, if the model is a decoder.
  // Neither changes a bit. Throws Interrupted soon after that was requested.
  std::vector<float> logits_of(std::shared_ptr<const tasks::TokenSequences> sequences,
                               const std::stop_token& cancelled);

  // EncoderModel::forward_behind(). One thread at a time, and not beside logits_of().
  void forward_behind(const nn::PackedBatch& batch, std::span<models::KeyValues* const> past,
                      std::span<float> logits);
  std::span<const float> weights_f32() const { return weights_.as<const float>(); }
  kernels::Context context() { return {threads_, kernels_, scratch_}; }
  nn::Precision precision() { return weights().precision(); }

  const models::EncoderModel& model() const { return model_; }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  int num_threads() const { return threads_.num_threads(); }
  // Tokens of the longest sequence.
  std::size_t max_tokens() const;
  // Notes for the user.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void round_weights();
  nn::Weights weights();
  models::Activations& activations_for(const models::BatchShape& shape);
  void forward(const nn::PackedBatch& batch, std::span<float> logits);
  void forward_behind_begin(CommonBegin& begin, const nn::PackedBatch& batch, std::size_t longest,
                            std::span<float> logits);

  ThreadPool threads_;
  kernels::KernelSet kernels_;
  kernels::Scratch scratch_;
  text::Tokenizer tokenizer_;
  models::EncoderModel model_;
  Buffer weights_;
  Buffer bf16_;                          // what products read; empty in f32
  std::optional<nn::Int8Linears> int8_;  // linear layers of an int8 model
  nn::PackedLinears packed_;             // the others, as products read them
  std::vector<std::string> warnings_;
  std::optional<models::Activations> activations_;  // for the largest batch so far
  Lanes lanes_;
  std::unique_ptr<WindowScheduler> scheduler_;  // uses all of the above
};

// The model's warnings on stderr.
void print_warnings(const InferenceModel& model);

// --model, --model_revision, --tokenizer_name, --cache_dir, --bf16.
void add_model_flags(CLI::App& app, ModelOptions& model);

}  // namespace tandem::apps
