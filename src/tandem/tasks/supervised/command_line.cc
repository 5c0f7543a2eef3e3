#include "tandem/tasks/supervised/command_line.h"

#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/supervised/supervised_job.h"

namespace tandem::supervised {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using flags::Kind;
using flags::Verdict;
using Arguments = SupervisedArguments;

FlagTable data_flags() {
  FlagTable table = tasks::data_source_flags(
      "rows with prompt and completion, messages, or text: JSON lines, Parquet, Arrow, CSV or TSV, "
      "also .gz or .zst");
  for (flags::Flag& row : table)
    if (row.name == "dataset_config_name") row.alias("dataset_config");
  FlagTable own = {
      flag("train_split_name", field<&tasks::DataSource::train_split_name>(),
           "split of the data set to train on; unset: train")
          .alias("dataset_train_split"),
      flag("validation_split_name", field<&tasks::DataSource::validation_split_name>(),
           "split of the data set to evaluate; unset: validation, else test")
          .alias("dataset_test_split"),
      flag("dataset_text_field", field<&Arguments::dataset_text_field>(), "column of plain texts"),
      flag("dataset_num_proc", field<&Arguments::dataset_num_proc>(),
           "threads that make samples, if not all of the rank's; the samples are the same")
          .between(1, 1024)
          .alias("preprocessing_num_workers"),
      flag("max_train_samples", field<&Arguments::max_train_samples>(),
           "use only the first n training rows")
          .at_least(0),
      flag("max_eval_samples", field<&Arguments::max_eval_samples>(),
           "use only the first n validation rows")
          .at_least(0),
      flags::note("dataset_streaming", Kind::kBool, false, "rows are always read part by part"),
      flags::note("shuffle_dataset", Kind::kBool, false, "each epoch has a random order anyway"),
  };
  table.insert(table.end(), own.begin(), own.end());
  return grouped("Data", std::move(table));
}

FlagTable sample_flags() {
  constexpr double kMaxLength = 1 << 20;
  return grouped(
      "Samples",
      {
          flag("max_length", field<&Arguments::max_length>(),
               "tokens of a sample; unset: 1,024, or the model's positions if they are fewer")
              .between(2, kMaxLength),
          flag("truncation_mode", field<&Arguments::truncation_mode>(),
               "part of a longer row that is kept"),
          flag("completion_only_loss", field<&Arguments::completion_only_loss>(),
               "learn completions, but not prompts; unset: true for rows with a prompt and a "
               "completion")
              .with_bare()
              .with_negation(),
          flag("eos_token", field<&Arguments::eos_token>(),
               "token behind each text and completion; unset: the tokenizer's"),
          flag("packing", field<&Arguments::packing>(),
               "several rows share a sample of up to max_length tokens; they do not see each other")
              .with_bare()
              .with_negation(),
          flag("packing_strategy", field<&Arguments::packing_strategy>(),
               "bfd cuts rows of more than max_length tokens, bfd_split makes several of them")
              .rule("wrapped", Verdict::kRefused,
                    "rows in one sample would see each other; use bfd or bfd_split"),
          flag("eval_packing", field<&Arguments::eval_packing>(),
               "the same in evaluations; unset: as packing")
              .with_bare()
              .with_negation(),
          flags::refused("assistant_only_loss", Kind::kBool, false,
                         "marks of generated text in chat templates are not read; use rows with a "
                         "prompt and a completion"),
          flags::refused("chat_template_path", Kind::kString, nullptr,
                         "copy the template to chat_template.jinja of the tokenizer's directory"),
          flags::note("padding_free", Kind::kBool, false, "no padding is computed"),
          flags::note("pad_to_multiple_of", Kind::kInteger, nullptr, "no padding is computed"),
      });
}

}  // namespace

FlagTable CommandLine::flags() const {
  FlagTable table = data_flags();
  const FlagTable samples = sample_flags();
  table.insert(table.end(), samples.begin(), samples.end());
  return table;
}

void CommandLine::check(const tasks::Stages& stages, std::string_view evaluation_flag) {
  if (stages.predict) {
    raise<ConfigError>(
        "--do_predict: run_sft predicts nothing; evaluate with --do_eval, and pass the model to "
        "another program to generate text");
  }
  arguments_.evaluate_on_test = true;
  DataTaskArguments::check(stages, evaluation_flag);
}

std::unique_ptr<tasks::JobTask> CommandLine::make_job() const {
  return std::make_unique<SupervisedJob>(arguments_);
}

}  // namespace tandem::supervised
