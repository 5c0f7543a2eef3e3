// The flags of run_ner, and of run_glue and run_classification: every one of the scripts has a row,
// and does what the row states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "apps/arguments/arguments_test_support.h"
#include "tandem/tasks/token_classification/command_line.h"

namespace tandem::apps {
namespace {

using ::testing::HasSubstr;

struct ParsedRunNer {
  tasks::NerArguments data;
  job::Arguments arguments;
};

ParsedRunNer parse_ner(const std::string& line) {
  ParsedRunNer parsed;
  token_classification::CommandLine task;
  parse_job(split("--model_name_or_path m --output_dir o " + line), "/nonexistent-directory",
            kEnvironment, task, parsed.arguments);
  parsed.data = task.arguments();
  return parsed;
}

std::string failure_ner(const std::string& line) {
  try {
    parse_ner(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// run_ner.py of transformers 4.0 to 5.1.
TEST(RunNerFlags, EveryOneOfTheScriptHasARow) {
  const FlagTable table = find_job_command("run_ner")->flags();
  for (const std::string& name :
       split("task_name dataset_name dataset_config_name train_file validation_file test_file "
             "text_column_name label_column_name overwrite_cache preprocessing_num_workers "
             "max_seq_length pad_to_max_length max_train_samples max_eval_samples "
             "max_predict_samples label_all_tokens return_entity_level_metrics model_name_or_path "
             "config_name tokenizer_name cache_dir model_revision token "
             "trust_remote_code ignore_mismatched_sizes label_smoothing_factor")) {
    EXPECT_EQ(std::count_if(table.begin(), table.end(),
                            [&](const Flag& flag) { return flag.name == name; }),
              1)
        << name;
  }
}

// run_glue.py and run_classification.py of transformers 4.57.
TEST(LabelFlags, EveryOneOfTheScriptsHasARow) {
  const std::string shared =
      "dataset_name dataset_config_name train_file validation_file test_file max_seq_length "
      "overwrite_cache pad_to_max_length max_train_samples max_eval_samples max_predict_samples "
      "model_name_or_path config_name tokenizer_name cache_dir model_revision token "
      "use_fast_tokenizer trust_remote_code ignore_mismatched_sizes label_smoothing_factor ";
  const std::map<std::string, std::string> own{
      {"run_glue", "task_name"},
      {"run_classification",
       "do_regression text_column_names text_column_delimiter label_column_name train_split_name "
       "validation_split_name test_split_name remove_splits remove_columns shuffle_train_dataset "
       "shuffle_seed metric_name preprocessing_num_workers"}};
  for (const auto& [command, more] : own) {
    const FlagTable table = find_job_command(command)->flags();
    for (const std::string& name : split(shared + more)) {
      const auto row = std::find_if(table.begin(), table.end(),
                                    [&](const Flag& flag) { return flag.name == name; });
      ASSERT_NE(row, table.end()) << command << " --" << name;
      EXPECT_NE(row->verdict, Verdict::kRefused) << command << " --" << name;
    }
  }
}

TEST(RunNerFlags, DefaultsAreTheScripts) {
  const auto parsed = parse_ner("--do_eval --validation_file v.json");
  EXPECT_EQ(parsed.data.task_name, "ner");
  EXPECT_FALSE(parsed.data.max_seq_length);
  EXPECT_FALSE(parsed.data.pad_to_max_length);
  EXPECT_FALSE(parsed.data.label_all_tokens);
}

TEST(RunNerFlags, FillTheArguments) {
  const auto parsed = parse_ner(
      "--do_train --train_file t.jsonl --task_name POS --text_column_name w --label_column_name t "
      "--max_seq_length 64 --pad_to_max_length --label_all_tokens --return_entity_level_metrics "
      "--max_train_samples 3 --label_smoothing_factor 0.1");
  EXPECT_EQ(parsed.data.train_file, "t.jsonl");
  EXPECT_EQ(parsed.data.text_column_name, "w");
  EXPECT_EQ(parsed.data.label_column_name, "t");
  EXPECT_EQ(parsed.data.max_seq_length, 64);
  EXPECT_EQ(parsed.data.pad_to_max_length, true);
  EXPECT_TRUE(parsed.data.label_all_tokens);
  EXPECT_TRUE(parsed.data.return_entity_level_metrics);
  EXPECT_EQ(parsed.data.max_train_samples, 3);
  EXPECT_EQ(parsed.data.label_smoothing_factor, 0.1);
}

TEST(RunNerFlags, ContradictionsAreNamed) {
  EXPECT_THAT(failure_ner("--do_train"), HasSubstr("no data"));
  EXPECT_THAT(failure_ner("--do_train --validation_file v.json"), HasSubstr("--train_file"));
  EXPECT_THAT(failure_ner("--do_train --train_file t.txt"),
              HasSubstr("expected a file that ends in"));
}

TEST(RunNerFlags, TheBestModelFollowsTheLoss) {
  const auto parsed = parse_ner(
      "--do_train --train_file t.json --validation_file v.json --load_best_model_at_end "
      "--eval_strategy steps --eval_steps 500");
  EXPECT_EQ(parsed.arguments.training.metric_for_best_model, "loss");
  EXPECT_EQ(parsed.arguments.training.greater_is_better, false);
}

}  // namespace
}  // namespace tandem::apps
