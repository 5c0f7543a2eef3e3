// The files that sentence-transformers keeps next to an encoder: which modules turn the hidden
// states of a text into its embedding, which prompts belong to the model, how long a text may be.
// Sources: sentence_transformers 2.0 to 6.2 (modules.json, N_Pooling, N_Dense, N_Normalize,
// config_sentence_transformers.json, sentence_bert_config.json).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tandem/models/heads/pooling_head.h"

namespace tandem::models {

enum class DenseActivation : std::uint8_t { kIdentity, kTanh, kRelu, kGelu, kSigmoid };

// By the name of a class of torch.nn, "torch.nn.modules.activation.Tanh". Throws DataError that
// begins with `where` for every other name.
DenseActivation activation_named(const std::string& type, const std::string& where);
// The path of the class: what activation_named() reads.
std::string activation_path(DenseActivation activation);
// The value of the activation at x.
float activate(DenseActivation activation, double x);

// y = activation(W x + b), in f32 with sums in f64.
struct DenseModule {
  std::size_t in_features = 0;
  std::size_t out_features = 0;
  std::vector<float> weight;  // [out_features, in_features]
  std::vector<float> bias;    // [out_features]; empty: none
  DenseActivation activation = DenseActivation::kTanh;
};

// x / max(|x|, 1e-12).
struct NormalizeModule {};

using EmbeddingModule = std::variant<DenseModule, NormalizeModule>;

struct SentenceFiles {
  // False: a bare model. It gets the mean of its tokens, or the last one if its class is causal.
  bool from_modules_json = false;
  std::vector<Pooling> poolings{Pooling::kMean};
  bool include_prompt = true;            // whether tokens of the prompt count in the pooling
  std::vector<EmbeddingModule> modules;  // behind the pooling, in the order of computation
  // Those of the model; a model that names neither has these two.
  std::map<std::string, std::string> prompts{{"document", ""}, {"query", ""}};
  std::optional<std::string> default_prompt_name;
  std::string similarity = "cosine";
  std::optional<std::size_t> max_seq_length;  // special tokens included
  bool do_lower_case = false;

  // The prompts in front of queries and of documents, as encode_query() and encode_document() of
  // sentence-transformers choose them; "" without one.
  std::string query_prompt() const;
  std::string document_prompt() const;
};

// Whether the class that config.json names is one that continues texts, whatever its family: the
// rule of sentence-transformers for a model without modules.json.
bool has_causal_class(const ModelConfig& config);

// The prompts of config_sentence_transformers.json.
struct ModelPrompts {
  std::map<std::string, std::string> prompts;
  std::optional<std::string> default_name;

  std::string default_prompt() const { return default_name ? prompts.at(*default_name) : ""; }
};
// Empty without the file. Throws DataError for a default that is not among them.
ModelPrompts read_prompts(const std::filesystem::path& directory);

// Values of an embedding of a model with `hidden_size`.
std::size_t embedding_size(const SentenceFiles& files, std::size_t hidden_size);

// Reads the directory of the model of this configuration. A directory without modules.json is a
// bare model. Throws DataError that names the file: a module that tandem does not compute, a first
// module that is not a Transformer, sizes that do not fit together, a path that leads out of the
// directory.
SentenceFiles read_sentence_files(const std::filesystem::path& directory,
                                  const ModelConfig& config);

// SentenceFiles::do_lower_case alone, which a tokenizer is loaded with.
bool reads_lower_case(const std::filesystem::path& directory);

// Applies the modules behind the pooling to one text: `pooled` is replaced by the embedding.
void apply_modules(std::span<const EmbeddingModule> modules, std::vector<float>& pooled);

}  // namespace tandem::models
