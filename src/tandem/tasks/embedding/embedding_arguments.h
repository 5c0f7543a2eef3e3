// The flags of `tandem run_embedding` that other tasks do not have. A plain struct; apps/arguments
// fills it from the command line. Names and defaults are those of sentence-transformers where it
// has the argument.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/models/heads/sentence_files.h"
#include "tandem/tasks/data_source.h"
#include "tandem/tasks/embedding/losses.h"
#include "tandem/tasks/ranking/nano_beir.h"

namespace tandem::tasks::embedding {

struct EmbeddingArguments : DataSource {
  // --- columns ---
  std::optional<std::string> train_columns;  // commas between; unset: the order of the file
  std::optional<std::string> label_column;
  std::optional<std::int64_t> max_train_samples, max_eval_samples, max_predict_samples;
  std::optional<int> preprocessing_num_workers;
  bool overwrite_cache = false;
  // One for all texts, or JSON: {column: prompt}, {data set: prompt}, {data set: {column: prompt}}.
  std::optional<std::string> prompts;

  // --- model, where its directory has no modules.json ---
  std::optional<std::string> pooling_mode;
  bool normalize = false;
  std::optional<std::string> similarity_fn_name;
  std::optional<int> max_seq_length;

  // --- loss ---
  std::optional<std::string> loss;  // or JSON {data set: loss}; unset: chosen by the columns
  std::optional<double> scale;
  std::optional<double> temperature;  // 1 / scale
  std::optional<std::string> similarity_fct, directions, hardness_mode, distance_metric;
  std::string partition_mode = "joint";
  double hardness_strength = 0;
  std::optional<double> margin;
  std::optional<std::string> matryoshka_dims, matryoshka_weights;  // commas between
  std::optional<std::string> guide;  // model of GISTEmbedLoss: a directory or a name
  std::string margin_strategy = "absolute";
  bool contrast_anchors = true, contrast_positives = true;
  std::optional<std::int64_t> num_labels;  // classes of SoftmaxLoss; unset: by the labels
  bool concatenation_sent_rep = true, concatenation_sent_difference = true;
  bool concatenation_sent_multiplication = false;
  std::optional<std::int64_t> mini_batch_size;
  bool gather_across_devices = false;

  // --- evaluation ---
  std::optional<std::string> evaluator;  // commas between; unset: chosen by the columns
  std::string evaluator_name;            // name of the data, in keys and names of tables
  std::optional<std::string> eval_corpus, eval_queries, eval_qrels;
  std::optional<std::string> nano_beir, nano_beir_names;   // a directory; commas between
  std::optional<std::string> query_prompt, corpus_prompt;  // for searches; unset: the model's
  std::optional<std::int64_t> truncate_dim;

  // --- batches ---
  std::string batch_sampler = "batch_sampler";
  std::string multi_dataset_batch_sampler = "proportional";
};

// The arguments of the loss of a data set of --train_files, or of other rows if `set` is empty. The
// labels choose the loss if none is named. Throws ConfigError for values that are not numbers.
LossOptions loss_options(const EmbeddingArguments& arguments, LabelKind labels,
                         const std::string& set = "");
// Throws ConfigError for unknown names and values of any loss, and for losses of unknown data sets.
void check_losses(const EmbeddingArguments& arguments);
// The prompt of each column of a data set: `set` is a name of --train_files, "validation" or
// "test", and empty for the only training set. Throws ConfigError for invalid JSON and unknown
// names.
std::vector<std::string> prompts_of(const EmbeddingArguments& arguments, const std::string& set,
                                    std::span<const std::string_view> columns);
// The stages that need rows: an evaluation of a search alone has none.
Stages stages_with_rows(Stages stages, const EmbeddingArguments& arguments);
inline bool needs_rows(const Stages& stages) {
  return stages.train || stages.eval || stages.predict;
}
// The searches of --nano_beir. Throws what ranking::find_nano_beir() throws.
std::vector<ranking::NanoBeirFiles> nano_beir_files(const EmbeddingArguments& arguments);
// The modules of a model's directory. Throws ConfigError for unknown names, and for flags of
// modules that the directory has.
models::SentenceFiles sentence_files(const EmbeddingArguments& arguments,
                                     const std::filesystem::path& directory,
                                     const models::ModelConfig& config);
// Rows of a batch beyond which its texts are embedded twice; 0: none.
std::size_t mini_batch_size(const EmbeddingArguments& arguments, std::string_view loss);

}  // namespace tandem::tasks::embedding
