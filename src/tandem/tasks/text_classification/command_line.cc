#include "tandem/tasks/text_classification/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"
#include "tandem/data/read_rows.h"
#include "tandem/tasks/text_classification/glue_tasks.h"
#include "tandem/tasks/text_classification/metrics.h"
#include "tandem/tasks/text_classification/text_classification_job.h"

namespace tandem::text_classification {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using flags::Kind;
using flags::note;
using Arguments = ClassificationArguments;

constexpr double kMaxLength = 1 << 20;

void append(FlagTable& table, const FlagTable& rows) {
  table.insert(table.end(), rows.begin(), rows.end());
}

FlagTable data_flags(Script script) {
  FlagTable table;
  if (script == Script::kGlue) {
    table.push_back(flag("task_name", field<&Arguments::task_name>(),
                         "a task of GLUE, whose data come from nyu-mll/glue: cola, mnli, mrpc, "
                         "qnli, qqp, rte, sst2, stsb or wnli"));
  }
  append(table, tasks::data_source_flags("training texts with a column \"label\": CSV, TSV, JSON "
                                         "(lines, or a list of objects), Parquet or Arrow, "
                                         "also .gz or .zst"));
  if (script == Script::kClassification) {
    append(
        table,
        {flag("text_column_names", field<&Arguments::text_column_names>(),
              "columns with text, separated by commas; several are joined to one text "
              "(default: sentence)"),
         flag("text_column_delimiter", field<&Arguments::text_column_delimiter>(),
              "what stands between the texts of several columns"),
         flag("label_column_name", field<&Arguments::label_column_name>(),
              "column with the label, or with a list of labels (default: label)"),
         flag("do_regression", field<&Arguments::do_regression>(),
              "whether labels are numbers to predict; unset: when they are not whole numbers")
             .with_bare(),
         flag("shuffle_train_dataset", field<&Arguments::shuffle_train_dataset>(),
              "shuffle the rows before --max_train_samples takes the first"),
         flag("shuffle_seed", field<&Arguments::shuffle_seed>(), "of that order").at_least(0),
         flag("metric_name", field<&Arguments::metric_name>(),
              "what an evaluation measures: accuracy, f1 or matthews_correlation of classes, "
              "f1 (micro) or accuracy of several labels, mse of numbers"),
         flag("preprocessing_num_workers", field<&Arguments::preprocessing_num_workers>(),
              "threads that make features, if not all of the rank's; the features are the same")
             .between(1, 1024),
         flag("train_split_name", field<&Arguments::train_split_name>(),
              "split of the data set to train on, if it is not called train"),
         flag("validation_split_name", field<&Arguments::validation_split_name>(),
              "split to evaluate, if it is not called validation"),
         flag("test_split_name", field<&Arguments::test_split_name>(),
              "split to predict, if it is not called test"),
         flag("remove_splits", field<&Arguments::remove_splits>(),
              "splits to leave out, separated by commas"),
         flag("remove_columns", field<&Arguments::remove_columns>(),
              "columns to leave out, separated by commas; columns that nothing uses are not read "
              "anyway")});
  }
  append(table, {note("use_fast_tokenizer", Kind::kBool, true,
                      "there is one tokenizer, whose tokens are those of the fast ones"),
                 flag("overwrite_cache", field<&Arguments::overwrite_cache>(),
                      "make features anew even if an earlier run kept them")});
  return grouped("Data", std::move(table));
}

FlagTable feature_flags() {
  return grouped(
      "Features",
      {flag("max_seq_length", field<&Arguments::max_seq_length>(),
            "tokens of a text or pair with its special tokens; longer ones are cut")
           .between(3, kMaxLength),
       flag("pad_to_max_length", field<&Arguments::pad_to_max_length>(),
            "unset: compute no padding; true: pad to max_seq_length; false: pad to the longest of "
            "the batch; the results are the same but for rounding")
           .with_bare()
           .with_negation(),
       flag("max_train_samples", field<&Arguments::max_train_samples>(),
            "use only the first n training examples")
           .at_least(0),
       flag("max_eval_samples", field<&Arguments::max_eval_samples>(),
            "use only the first n evaluation examples")
           .at_least(0),
       flag("max_predict_samples", field<&Arguments::max_predict_samples>(),
            "use only the first n test examples")
           .at_least(0),
       flag("label_smoothing_factor", field<&Arguments::label_smoothing_factor>(),
            "share of a uniform distribution in the classes that are trained towards")
           .between(0, 0.9999999999)});
}

}  // namespace

std::string_view CommandLine::command() const {
  return arguments_.script == Script::kGlue ? "run_glue" : "run_classification";
}

FlagTable CommandLine::flags() const {
  FlagTable table = data_flags(arguments_.script);
  append(table, feature_flags());
  return table;
}

std::vector<std::string> CommandLine::metrics() const {
  std::vector<std::string> names{"accuracy", "f1", "mse"};
  if (arguments_.metric_name) names = {*arguments_.metric_name};
  if (arguments_.script == Script::kGlue) {
    const GlueTask* task = arguments_.task_name ? find_glue_task(*arguments_.task_name) : nullptr;
    names =
        task == nullptr ? std::vector<std::string>{"accuracy", "mse"} : metric_names(task->metrics);
  }
  names.emplace_back("loss");
  return names;
}

void CommandLine::check(const tasks::Stages& stages, std::string_view evaluation_flag) {
  if (arguments_.task_name) return check_task(stages);
  tasks::check_data_source(arguments_, stages, evaluation_flag, data::row_file_extensions());
}

std::unique_ptr<tasks::JobTask> CommandLine::make_job() const {
  return std::make_unique<TextClassificationJob>(arguments_);
}

void CommandLine::check_task(const tasks::Stages& stages) {
  std::string& name = *arguments_.task_name;
  name = ascii_lower(name);
  if (find_glue_task(name) == nullptr) {
    std::vector<std::string_view> names;
    for (const GlueTask& task : glue_tasks()) names.push_back(task.name);
    raise<ConfigError>(
        "--task_name {}: expected a task of GLUE, {}; other data come with --train_file and "
        "--validation_file, or --dataset_name",
        name, fmt::join(names, ", "));
  }
  // Files of a task win over its data set, so that it can be used without the Hub.
  if (arguments_.train_file || arguments_.validation_file || arguments_.test_file)
    tasks::check_data_source(arguments_, stages, "--do_eval", data::row_file_extensions());
}

}  // namespace tandem::text_classification
