#include "tandem/tasks/reranking/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/tasks/reranking/pair_evaluators.h"
#include "tandem/tasks/reranking/reranking_job.h"
#include "tandem/tasks/row_flags.h"
#include "tandem/tasks/several_sets.h"

namespace tandem::tasks::reranking {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using Arguments = RerankingArguments;

FlagTable data_flags() {
  FlagTable table = data_source_flags(
      "training rows with the columns query, passage and label, in any names: JSON lines, CSV, "
      "TSV, Parquet or Arrow, also .gz or .zst");
  FlagTable own = row_flags<Arguments>();
  own.push_back(train_files_flag());
  own.push_back(
      flag("batch_sampler", field<&Arguments::batch_sampler>(),
           "batch_sampler (random rows), or no_duplicates and no_duplicates_hashed (no text twice "
           "in a batch)"));
  own.push_back(set_order_flag<Arguments>());
  own.insert(own.end(),
             {flag("overwrite_cache", field<&Arguments::overwrite_cache>(),
                   "make features anew even if an earlier run kept them"),
              flag("preprocessing_num_workers", field<&Arguments::preprocessing_num_workers>(),
                   "threads that make features; unset: all threads of the rank; the features are "
                   "the same")
                  .between(1, 1024)});
  table.insert(table.end(), own.begin(), own.end());
  return grouped("Data", std::move(table));
}

std::vector<std::string_view> loss_names() {
  std::vector<std::string_view> names;
  for (const LossNeeds& loss : losses()) names.push_back(loss.name);
  return names;
}

FlagTable model_flags() {
  static const std::string help_of_loss = fmt::format(
      "{}; with --train_files also JSON with the loss of each data set; unset: "
      "BinaryCrossEntropyLoss for a model with one label, else CrossEntropyLoss",
      fmt::join(loss_names(), ", "));
  constexpr double kMaxLength = 1 << 20;
  return grouped(
      "Reranker",
      {
          flag("loss", field<&Arguments::loss>(), help_of_loss),
          flag("weighting_scheme", field<&Arguments::weighting_scheme>(),
               "of LambdaLoss: NDCGLoss2PPScheme, NDCGLoss2Scheme, NDCGLoss1Scheme, "
               "LambdaRankScheme or NoWeightingScheme (default: NDCGLoss2PPScheme)"),
          flag("k", field<&Arguments::k>(),
               "of LambdaLoss and RankNetLoss: only the first k passages by score count")
              .at_least(1),
          flag("respect_input_order", field<&Arguments::respect_input_order>(),
               "of ListMLELoss and PListMLELoss: the order of a row is the right one; false: the "
               "order by label")
              .with_bare()
              .with_negation(),
          flag("pos_weight", field<&Arguments::pos_weight>(),
               "of BinaryCrossEntropyLoss: factor of the loss of positive labels (default: 1)")
              .at_least(0),
          flag("num_labels", field<&Arguments::num_labels>(),
               "outputs of the model; unset: those of the model, and 1 for a bare encoder")
              .between(1, 1 << 20),
          flag("activation_fn", field<&Arguments::activation_fn>(),
               "what the saved model applies to its logits: sigmoid, identity or a class of torch "
               "such as torch.nn.modules.activation.Tanh; unset: that of the model, else sigmoid "
               "for one label"),
          flag("max_seq_length", field<&Arguments::max_seq_length>(),
               "tokens of a query and a passage with their special tokens; longer pairs are cut; "
               "unset: the length of the model")
              .between(4, kMaxLength),
          flag("pad_to_max_length", field<&Arguments::pad_to_max_length>(),
               "unset: compute no padding; true: pad to max_seq_length; false: pad to the longest "
               "of the batch; the results are the same but for rounding")
              .with_bare()
              .with_negation(),
      });
}

// Flags of losses with in-batch negatives.
FlagTable in_batch_flags() {
  return grouped(
      "Reranker",
      {
          flag("scale", field<&Arguments::scale>(),
               "of MultipleNegativesRankingLoss: factor of the scores (default: 10)"),
          flag("num_negatives", field<&Arguments::num_negatives>(),
               "of MultipleNegativesRankingLoss: passages of other rows of the batch that each "
               "query is also scored with, drawn at random; 0: all of them")
              .at_least(0),
          flag("mini_batch_size", field<&Arguments::mini_batch_size>(),
               "of MultipleNegativesRankingLoss: a batch of more pairs is computed twice, so that "
               "its activations need the memory of one piece; the results are the same (default: "
               "32 for CachedMultipleNegativesRankingLoss, else no limit)")
              .at_least(1),
      });
}

FlagTable evaluator_flags() {
  return grouped(
      "Evaluator",
      {
          flag("evaluator", field<&Arguments::evaluator>(),
               "metrics of an evaluation in addition to the loss: reranking (nDCG, MRR, MAP), "
               "correlation (Pearson, Spearman) or classification (average precision, F1, "
               "accuracy)"),
          flag("eval_file", field<&Arguments::eval_file>(),
               "rows for the evaluator; of reranking a query, positives and negatives, or lists of "
               "passages and labels, of which those above 0 are relevant (default: the validation "
               "file)"),
          flag("evaluator_name", field<&Arguments::evaluator_name>(),
               "name of the data in metrics and files of the evaluator: dev makes "
               "eval_dev_ndcg@10"),
          flag("always_rerank_positives", field<&Arguments::always_rerank_positives>(),
               "of reranking with a column documents: rank positives that are missing there, too")
              .with_bare()
              .with_negation(),
          flag("at_k", field<&Arguments::at_k>(), "passages that count for nDCG and MRR")
              .at_least(1),
      });
}

}  // namespace

FlagTable CommandLine::flags() const {
  FlagTable table = data_flags();
  for (const FlagTable& part : {model_flags(), in_batch_flags(), evaluator_flags()})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

std::vector<std::string> CommandLine::metrics() const {
  std::vector<std::string> names{"loss"};
  if (!arguments_.evaluator) return names;
  const std::vector<std::string> own =
      evaluator_metrics(evaluator_named(*arguments_.evaluator),
                        static_cast<std::size_t>(arguments_.at_k), arguments_.evaluator_name);
  names.insert(names.end(), own.begin(), own.end());
  return names;
}

void CommandLine::check(const Stages& stages, std::string_view evaluation_flag) {
  if (arguments_.eval_file && !arguments_.evaluator)
    throw ConfigError("--eval_file: found no --evaluator, expected one", /*usage=*/true);
  if (arguments_.evaluator) evaluator_named(*arguments_.evaluator);
  // The evaluator's file alone is an evaluation, too.
  if (arguments_.eval_file && !arguments_.validation_file && !arguments_.dataset_name)
    arguments_.validation_file = arguments_.eval_file;
  DataTaskArguments::check(stages, evaluation_flag);
  check_sampler();
  set_order_named(arguments_.multi_dataset_batch_sampler);
  check_loss("");
  for (const NamedSource& set : train_sources(arguments_)) check_loss(set.name);
}

void CommandLine::check_sampler() const {
  const std::string& sampler = arguments_.batch_sampler;
  if (sampler == "batch_sampler" || sampler == "no_duplicates" || sampler == "no_duplicates_hashed")
    return;
  throw ConfigError(fmt::format("--batch_sampler: found '{}', expected batch_sampler, "
                                "no_duplicates or no_duplicates_hashed",
                                sampler),
                    /*usage=*/true);
}

void CommandLine::check_loss(const std::string& set) const {
  const auto loss = value_of_set(arguments_, "loss", arguments_.loss, set);
  if (!loss) return;
  if (loss_needs(*loss).in_batch_negatives && arguments_.pad_to_max_length) {
    throw ConfigError(
        fmt::format("--pad_to_max_length: found --loss {}, whose pairs are never padded; leave the "
                    "flag out",
                    *loss),
        /*usage=*/true);
  }
  if (arguments_.pos_weight && *loss != "BinaryCrossEntropyLoss") {
    raise<ConfigError>("--pos_weight: found --loss {}, expected BinaryCrossEntropyLoss", *loss);
  }
}

std::unique_ptr<JobTask> CommandLine::make_job() const {
  return std::make_unique<RerankingJob>(arguments_);
}

}  // namespace tandem::tasks::reranking
