// The flags of `tandem run_reranker` that other tasks do not have. A plain struct; the command line
// fills it. Names and defaults are those of sentence-transformers where it has the argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/tasks/data_source.h"

namespace tandem::tasks::reranking {

struct RerankingArguments : DataSource {
  // --- columns ---
  std::optional<std::string> train_columns;  // commas between; unset: the order of the file
  std::optional<std::string> label_column;   // unset: label, labels, score or scores
  std::optional<std::int64_t> max_train_samples, max_eval_samples, max_predict_samples;
  std::optional<int> preprocessing_num_workers;
  bool overwrite_cache = false;

  // --- evaluation ---
  std::optional<std::string> evaluator;  // reranking, correlation or classification
  std::optional<std::string> eval_file;  // what it reads; unset: the validation file
  std::string evaluator_name;            // name of the data, in keys and names of tables
  int at_k = 10;                         // cut of MRR and nDCG
  bool always_rerank_positives = true;   // for rows with a column of documents

  // --- features ---
  std::optional<int> max_seq_length;  // unset: the model's
  std::optional<bool> pad_to_max_length;

  // --- model and loss ---
  // JSON {data set: loss}, too; unset: by the number of labels.
  std::optional<std::string> loss;
  std::string batch_sampler = "batch_sampler";
  std::string multi_dataset_batch_sampler = "proportional";
  std::optional<double> pos_weight;
  std::optional<double> scale;                  // of MultipleNegativesRankingLoss
  std::int64_t num_negatives = 4;               // in-batch negatives of a query; 0: all
  std::optional<std::int64_t> mini_batch_size;  // pairs; unset: 32 for Cached losses, else no limit
  std::optional<std::string> weighting_scheme;  // scheme of LambdaLoss
  std::optional<std::int64_t> k;                // k of LambdaLoss and RankNetLoss
  bool respect_input_order = true;              // for ListMLELoss and PListMLELoss
  std::optional<int> num_labels;                // unset: those of the model, 1 for a bare encoder
  std::optional<std::string> activation_fn;
};

}  // namespace tandem::tasks::reranking
