#include "tandem/tasks/masked_language/command_line.h"

#include "tandem/core/error.h"
#include "tandem/tasks/corpus/corpus.h"
#include "tandem/tasks/masked_language/masked_language_job.h"

namespace tandem::masked_language {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using Arguments = MaskedLanguageArguments;

FlagTable model_flags() {
  using hub::ModelArguments;
  return grouped(
      "Model",
      {
          flag("model_name_or_path", field<&ModelArguments::model_name_or_path>(),
               "model directory, or a model's name in the Hugging Face cache or on the Hub; unset: "
               "a new model, drawn from the seed"),
          flag("model_type", field<&ModelArguments::model_type>(),
               "family of a new model, with the family's defaults"),
          flag("config_overrides", field<&ModelArguments::config_overrides>(),
               "what a new model has instead of the defaults: hidden_size=256,num_hidden_layers=4"),
      });
}

FlagTable data_flags() {
  FlagTable table = tasks::data_source_flags(
      "rows of text, the column text or the first one: text with a row per line, CSV, TSV, JSON "
      "lines, Parquet or Arrow");
  for (const flags::Flag& row : {
           flag("validation_split_percentage", field<&Arguments::validation_split_percentage>(),
                "share of the training rows, the first ones, that becomes the validation part if "
                "no other is given")
               .between(0, 100),
           flag("streaming", field<&Arguments::streaming>(),
                "accepted: a corpus of any size is read through a fixed memory")
               .with_bare(),
           flag("overwrite_cache", field<&Arguments::overwrite_cache>(),
                "make pieces anew even if an earlier run kept them"),
           flag("preprocessing_num_workers", field<&Arguments::preprocessing_num_workers>(),
                "threads that make pieces, if not all of the rank's; the pieces are the same")
               .between(1, 1024),
       }) {
    table.push_back(row);
  }
  return grouped("Data", std::move(table));
}

FlagTable piece_flags() {
  constexpr double kMaxLength = 1 << 20;
  return grouped(
      "Pieces",
      {
          flag("max_seq_length", field<&Arguments::max_seq_length>(),
               "tokens of a piece, special ones included; unset: the tokenizer's model_max_length, "
               "at most 1,024")
              .between(3, kMaxLength),
          flag("line_by_line", field<&Arguments::line_by_line>(),
               "each row that is not blank is a piece; otherwise rows are joined and cut"),
          flag("pad_to_max_length", field<&Arguments::pad_to_max_length>(),
               "unset: compute no padding; true: pad to max_seq_length; false: pad to the longest "
               "of the batch; the numbers are the same but for rounding")
              .with_bare()
              .with_negation(),
          flag("max_train_samples", field<&Arguments::max_train_samples>(),
               "use only the first n training pieces")
              .at_least(0),
          flag("max_eval_samples", field<&Arguments::max_eval_samples>(),
               "use only the first n validation pieces")
              .at_least(0),
      });
}

FlagTable mask_flags() {
  return grouped(
      "Masks",
      {
          flag("mlm_probability", field<&Arguments::mlm_probability>(),
               "share of the tokens that the model predicts, above 0")
              .between(0, 1),
          flag("whole_word_mask", field<&Arguments::whole_word_mask>(),
               "words are predicted whole or not at all"),
          flag("torch_masks", field<&Arguments::torch_masks>(),
               "draw the masks of the official script, for comparisons with it: one rank, no "
               "dropout"),
      });
}

}  // namespace

FlagTable CommandLine::flags() const {
  FlagTable table = model_flags();
  for (const FlagTable& part : {data_flags(), piece_flags(), mask_flags()})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

void CommandLine::check(const tasks::Stages& stages, std::string_view evaluation_flag) {
  if (stages.predict) {
    raise<ConfigError>(
        "--do_predict: run_mlm predicts nothing; evaluate with --do_eval, and use the model in "
        "another task");
  }
  if (arguments_.mlm_probability < kLeastProbability) {
    raise<ConfigError>(
        "--mlm_probability: found {:g}, expected a number above 0: no token would be chosen, so "
        "nothing would be predicted",
        arguments_.mlm_probability);
  }
  corpus::check_corpus_source(arguments_, stages, evaluation_flag);
}

std::unique_ptr<tasks::JobTask> CommandLine::make_job() const {
  return std::make_unique<MaskedLanguageJob>(arguments_);
}

}  // namespace tandem::masked_language
