#include "tandem/tasks/corpus/corpus_arguments.h"

#include "tandem/hub/model_arguments.h"

namespace tandem::corpus {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;

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
      "lines, Parquet or Arrow, also .gz or .zst");
  for (const flags::Flag& row : {
           flag("validation_split_percentage",
                field<&CorpusArguments::validation_split_percentage>(),
                "share of the training rows, the first ones, that becomes the validation part if "
                "no other is given")
               .between(0, 100),
           flag("streaming", field<&CorpusArguments::streaming>(),
                "accepted: a corpus of any size is read through a fixed memory")
               .with_bare(),
           flag("overwrite_cache", field<&CorpusArguments::overwrite_cache>(),
                "make samples anew even if an earlier run kept them"),
           flag("preprocessing_num_workers", field<&CorpusArguments::preprocessing_num_workers>(),
                "threads that make samples, if not all of the rank's; the samples are the same")
               .between(1, 1024),
       }) {
    table.push_back(row);
  }
  return grouped("Data", std::move(table));
}

FlagTable sample_flags() {
  return {
      flag("max_train_samples", field<&CorpusArguments::max_train_samples>(),
           "use only the first n training samples")
          .at_least(0),
      flag("max_eval_samples", field<&CorpusArguments::max_eval_samples>(),
           "use only the first n validation samples")
          .at_least(0),
  };
}

}  // namespace tandem::corpus
