#include "tandem/tasks/embedding/command_line.h"

#include <fmt/format.h>

#include "tandem/core/error.h"
#include "tandem/tasks/embedding/embedding_job.h"
#include "tandem/tasks/embedding/evaluations.h"
#include "tandem/tasks/embedding/losses.h"
#include "tandem/tasks/ranking/nano_beir.h"
#include "tandem/tasks/row_flags.h"
#include "tandem/tasks/several_sets.h"

namespace tandem::tasks::embedding {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using Arguments = EmbeddingArguments;

FlagTable data_flags() {
  FlagTable table = data_source_flags(
      "training rows with text columns such as anchor and positive: JSON lines, CSV, TSV, Parquet "
      "or Arrow, also .gz or .zst");
  FlagTable own = row_flags<Arguments>();
  own.push_back(train_files_flag());
  own.insert(own.end(),
             {flag("overwrite_cache", field<&Arguments::overwrite_cache>(),
                   "make features anew even if an earlier run kept them"),
              flag("preprocessing_num_workers", field<&Arguments::preprocessing_num_workers>(),
                   "threads that make features; unset: all threads of the rank; the "
                   "features are the same")
                  .between(1, 1024),
              flags::note("pad_to_max_length", flags::Kind::kBool, nullptr,
                          "padding changes no embedding, and none is computed")
                  .with_bare()});
  table.insert(table.end(), own.begin(), own.end());
  return grouped("Data", std::move(table));
}

FlagTable model_flags() {
  constexpr double kMaxLength = 1 << 20;
  return grouped(
      "Embeddings",
      {
          flag("max_seq_length", field<&Arguments::max_seq_length>(),
               "tokens of a text with its special tokens; longer texts are cut; unset: the length "
               "of the model")
              .between(3, kMaxLength),
          flag("pooling_mode", field<&Arguments::pooling_mode>(),
               "for a model without modules.json: mean, cls, max, mean_sqrt_len_tokens, "
               "weightedmean or lasttoken (default: mean)"),
          flag("similarity_fn_name", field<&Arguments::similarity_fn_name>(),
               "for a model without modules.json: cosine, dot, euclidean or manhattan, which is "
               "written to the model's files (default: cosine)"),
          flag("prompts", field<&Arguments::prompts>(),
               "text in front of every text, or JSON with a text for each column: "
               "{\"anchor\": \"query: \"}; with --train_files for each data set, a text or such "
               "JSON: {\"nli\": \"query: \"}"),
          flag("normalize", field<&Arguments::normalize>(),
               "for a model without modules.json: embeddings have length 1"),
      });
}

std::string loss_names() {
  std::string names;
  for (const LossNeeds& one : losses())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  return names;
}

FlagTable loss_flags() {
  static const std::string help_of_loss =
      loss_names() +
      "; with --train_files also JSON with the loss of each data set; unset: chosen by the columns "
      "and their labels";
  return grouped(
      "Loss",
      {
          flag("loss", field<&Arguments::loss>(), help_of_loss),
          flag("scale", field<&Arguments::scale>(),
               "factor of the similarities (default: 20, of GISTEmbedLoss 100)"),
          flag("temperature", field<&Arguments::temperature>(),
               "the same as --scale 1/temperature"),
          flag("similarity_fct", field<&Arguments::similarity_fct>(),
               "of losses with in-batch negatives: cos_sim or dot_score (default: cos_sim)"),
          flag("directions", field<&Arguments::directions>(),
               "of losses with in-batch negatives: query_to_doc, query_to_query, doc_to_query, "
               "doc_to_doc, separated by commas (default: query_to_doc)"),
          flag("partition_mode", field<&Arguments::partition_mode>(),
               "several directions share one softmax (joint), or have one each (per_direction)"),
          flag("hardness_mode", field<&Arguments::hardness_mode>(),
               "negatives whose logits grow with their similarity: in_batch_negatives, "
               "hard_negatives or all_negatives; unset: none"),
          flag("hardness_strength", field<&Arguments::hardness_strength>(),
               "factor of that similarity")
              .at_least(0),
          flag("margin", field<&Arguments::margin>(),
               "of TripletLoss and the Batch…TripletLoss classes (default: 5), ContrastiveLoss and "
               "OnlineContrastiveLoss (default: 0.5), GISTEmbedLoss (default: 0)"),
          flag("distance_metric", field<&Arguments::distance_metric>(),
               "of losses with a margin: euclidean, cosine or manhattan (default: that of the "
               "class)"),
          flag("matryoshka_dims", field<&Arguments::matryoshka_dims>(),
               "adds the loss of embeddings that are cut to these sizes, separated by commas"),
          flag("matryoshka_weights", field<&Arguments::matryoshka_weights>(),
               "factor of the loss of each size (default: 1 for each)"),
          flag("mini_batch_size", field<&Arguments::mini_batch_size>(),
               "batches of more rows are embedded twice, which bounds the memory of activations "
               "and changes no bit (default: 32 for losses with Cached in the name, else no bound)")
              .at_least(1),
      });
}

// Flags of losses with a guide or a classifier.
FlagTable further_loss_flags() {
  return grouped(
      "Loss",
      {
          flag("guide", field<&Arguments::guide>(),
               "model directory or name of the bi-encoder of GISTEmbedLoss; texts that it finds "
               "more similar than the positive pair are not used as negatives"),
          flag(
              "margin_strategy", field<&Arguments::margin_strategy>(),
              "of GISTEmbedLoss: the margin is subtracted from the similarity of the positive pair "
              "(absolute), or is a part of it (relative)"),
          flag("contrast_anchors", field<&Arguments::contrast_anchors>(),
               "GISTEmbedLoss also compares the anchors with each other")
              .with_bare()
              .with_negation(),
          flag("contrast_positives", field<&Arguments::contrast_positives>(),
               "GISTEmbedLoss also compares the positives with each other")
              .with_bare()
              .with_negation(),
          flag("num_labels", field<&Arguments::num_labels>(),
               "classes of SoftmaxLoss (default: by the largest label)")
              .between(2, 1 << 20),
          flag("concatenation_sent_rep", field<&Arguments::concatenation_sent_rep>(),
               "the classifier of SoftmaxLoss reads both embeddings")
              .with_bare()
              .with_negation(),
          flag("concatenation_sent_difference", field<&Arguments::concatenation_sent_difference>(),
               "the classifier of SoftmaxLoss reads the size of their difference")
              .with_bare()
              .with_negation(),
          flag("concatenation_sent_multiplication",
               field<&Arguments::concatenation_sent_multiplication>(),
               "the classifier of SoftmaxLoss reads their product, value by value")
              .with_bare(),
      });
}

FlagTable batch_flags() {
  return grouped(
      "Batches",
      {
          flag("gather_across_devices", field<&Arguments::gather_across_devices>(),
               "compare the rows of all devices, not only those of each device"),
          flag("batch_sampler", field<&Arguments::batch_sampler>(),
               "batch_sampler (random rows), no_duplicates and no_duplicates_hashed (no text twice "
               "in a batch), or group_by_label (every label of a batch has at least two rows)"),
          set_order_flag<Arguments>(),
      });
}

FlagTable evaluation_flags() {
  return grouped(
      "Evaluation",
      {
          flag("evaluator", field<&Arguments::evaluator>(),
               "embedding_similarity, binary_classification, triplet, information_retrieval or "
               "nano_beir, several separated by commas; unset: chosen by the columns of the "
               "validation rows"),
          flag("evaluator_name", field<&Arguments::evaluator_name>(),
               "name of the data in metrics and files of the evaluators: dev makes "
               "eval_dev_cosine_ndcg@10"),
          flag("eval_corpus", field<&Arguments::eval_corpus>(),
               "documents of information_retrieval, with columns _id and text")
              .as_path(),
          flag("eval_queries", field<&Arguments::eval_queries>(),
               "queries of information_retrieval, with columns _id and text")
              .as_path(),
          flag("eval_qrels", field<&Arguments::eval_qrels>(),
               "relevant documents of the queries, with columns query-id and corpus-id, and "
               "optionally score")
              .as_path(),
          flag("nano_beir", field<&Arguments::nano_beir>(),
               "directory with the folders corpus, queries and qrels, which have a file of each "
               "search, as the data set sentence-transformers/NanoBEIR-en")
              .as_path(),
          flag("nano_beir_names", field<&Arguments::nano_beir_names>(),
               "searches of --nano_beir, separated by commas: msmarco or NanoMSMARCO; unset: all"),
          flag("query_prompt", field<&Arguments::query_prompt>(),
               "text in front of the queries of a search; unset: the prompt query of the model"),
          flag("corpus_prompt", field<&Arguments::corpus_prompt>(),
               "text in front of the documents of a search; unset: the prompt document, passage or "
               "corpus of the model"),
          flag("truncate_dim", field<&Arguments::truncate_dim>(),
               "evaluate the first values of each embedding; unset: all")
              .at_least(1),
      });
}

}  // namespace

FlagTable CommandLine::flags() const {
  FlagTable table = data_flags();
  for (const FlagTable& part :
       {model_flags(), loss_flags(), further_loss_flags(), batch_flags(), evaluation_flags()})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

// Those of NanoBEIR and of their mean.
std::vector<std::string> CommandLine::search_names() const {
  if (!arguments_.nano_beir) return {};
  const auto cut = static_cast<std::size_t>(arguments_.truncate_dim.value_or(0));
  std::vector<std::string> names{ranking::nano_beir_name(cut)};
  for (const auto& search : nano_beir_files(arguments_))
    names.push_back(ranking::nano_beir_name(search.name, cut));
  return names;
}

std::vector<std::string> CommandLine::metrics() const {
  std::vector<std::string> all = evaluator_metrics(arguments_.evaluator_name, search_names());
  all.insert(all.begin(), "loss");
  return all;
}

void CommandLine::check(const Stages& stages, std::string_view evaluation_flag) {
  const std::string& sampler = arguments_.batch_sampler;
  if (sampler != "batch_sampler" && sampler != "no_duplicates" &&
      sampler != "no_duplicates_hashed" && sampler != "group_by_label") {
    raise<ConfigError>(
        "--batch_sampler: found '{}', expected batch_sampler, no_duplicates, "
        "no_duplicates_hashed or group_by_label",
        sampler);
  }
  if (arguments_.evaluator)
    for (const std::string& name : comma_list(*arguments_.evaluator)) evaluator_named(name);
  const int given = (arguments_.eval_corpus ? 1 : 0) + (arguments_.eval_queries ? 1 : 0) +
                    (arguments_.eval_qrels ? 1 : 0);
  if (given != 0 && given != 3) {
    raise<ConfigError>(
        "--eval_corpus, --eval_queries and --eval_qrels: found {} of them, expected all three",
        given);
  }
  if (arguments_.nano_beir_names && !arguments_.nano_beir)
    raise<ConfigError>("--nano_beir_names: found no --nano_beir, expected its directory");
  check_losses(arguments_);
  set_order_named(arguments_.multi_dataset_batch_sampler);
  const Stages of_rows = stages_with_rows(stages, arguments_);
  if (needs_rows(of_rows)) DataTaskArguments::check(of_rows, evaluation_flag);
}

std::unique_ptr<JobTask> CommandLine::make_job() const {
  return std::make_unique<EmbeddingJob>(arguments_);
}

}  // namespace tandem::tasks::embedding
