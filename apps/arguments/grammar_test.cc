#include "tandem/flags/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/flags/suggest.h"
#include "tandem/trainer/enum_names.h"

namespace tandem::flags {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A small table with one row of each kind.
FlagTable small_table() {
  using trainer::TrainingArguments;
  return {
      flag("do_train", field<&TrainingArguments::do_train>(), ""),
      flag("do_eval", field<&TrainingArguments::do_eval>(), ""),
      flag("logging_nan_inf_filter", field<&TrainingArguments::logging_nan_inf_filter>(), ""),
      flag("greater_is_better", field<&TrainingArguments::greater_is_better>(), ""),
      flag("seed", field<&TrainingArguments::seed>(), "").at_least(0),
      flag("max_steps", field<&TrainingArguments::max_steps>(), "").at_least(-1),
      flag("learning_rate", field<&TrainingArguments::learning_rate>(), ""),
      flag("run_name", field<&TrainingArguments::run_name>(), ""),
      flag("eval_strategy", field<&TrainingArguments::eval_strategy>(), "")
          .alias("evaluation_strategy"),
      flag("eval_steps", field<&TrainingArguments::eval_steps>(), ""),
      flag("report_to", field<&TrainingArguments::report_to>(), ""),
      note("lr_scheduler_kwargs", Kind::kDict, Json::object(), ""),
      note("debug", Kind::kString, "", "").with_bare(),
      refused("deepspeed", Kind::kDict, nullptr, ""),
      flag("include_num_input_tokens_seen",
           field<&TrainingArguments::include_num_input_tokens_seen>(), "")
          .with_truth_values("all", "no")
          .with_bare(),
  };
}

// The values by flag name.
Json read(const std::vector<std::string>& words) {
  const FlagTable table = small_table();
  Json values = Json::object();
  for (const Given& given : parse_command_line(table, words))
    values[std::string(given.flag->name)] = given.value;
  return values;
}

std::string error_of(const std::vector<std::string>& words) {
  try {
    read(words);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "no error";
}

TEST(Grammar, SpellingsOfNamesAndValues) {
  const Json expected = {{"learning_rate", 3e-5}};
  EXPECT_EQ(read({"--learning_rate", "3e-5"}), expected);
  EXPECT_EQ(read({"--learning-rate", "3e-5"}), expected);
  EXPECT_EQ(read({"--learning_rate=3e-5"}), expected);
  EXPECT_EQ(read({"--learning-rate=3e-5"}), expected);
  EXPECT_EQ(read({"--learn", "3e-5"}), expected);
  EXPECT_EQ(read({"--learn=+3e-5"}), expected);
  EXPECT_EQ(read({"--run_name", "a=b"}), (Json{{"run_name", "a=b"}}));
  EXPECT_EQ(read({"--run_name=a=b"}), (Json{{"run_name", "a=b"}}));
  EXPECT_EQ(read({"--run_name="}), (Json{{"run_name", ""}}));
  EXPECT_EQ(read({"--evaluation_strategy", "steps"}), (Json{{"eval_strategy", "steps"}}));
}

TEST(Grammar, LastOfRepeatedFlagsWinsWhateverTheSpelling) {
  EXPECT_EQ(read({"--seed", "1", "--seed=2"}), (Json{{"seed", 2}}));
  EXPECT_EQ(read({"--eval_strategy", "no", "--evaluation-strategy", "epoch"}),
            (Json{{"eval_strategy", "epoch"}}));
  EXPECT_EQ(read({"--no_logging_nan_inf_filter", "--logging_nan_inf_filter"}),
            (Json{{"logging_nan_inf_filter", true}}));
}

TEST(Grammar, Bools) {
  EXPECT_EQ(read({"--do_train", "--do_eval"}), (Json{{"do_train", true}, {"do_eval", true}}));
  for (const char* yes : {"yes", "True", "t", "Y", "1"}) {
    EXPECT_EQ(read({"--do_train", yes}), (Json{{"do_train", true}})) << yes;
  }
  for (const char* no : {"NO", "false", "F", "n", "0"}) {
    EXPECT_EQ(read({"--do_train", no}), (Json{{"do_train", false}})) << no;
  }
  EXPECT_EQ(read({"--do_train=false"}), (Json{{"do_train", false}}));
  EXPECT_THAT(error_of({"--do_train", "maybe"}),
              AllOf(HasSubstr("argument --do_train"), HasSubstr("'maybe'"),
                    HasSubstr("yes/no, true/false")));
}

// A message about a value names the flag as it was written, whatever else it is called.
TEST(Grammar, MessagesHaveTheSpellingThatWasGiven) {
  EXPECT_THAT(error_of({"--evaluation_strategy", "often"}),
              HasSubstr("argument --evaluation_strategy: invalid choice: 'often'"));
  EXPECT_THAT(error_of({"--evaluation-strat", "often"}),
              HasSubstr("argument --evaluation_strategy: "));
  EXPECT_THAT(error_of({"--eval_strategy", "often"}), HasSubstr("argument --eval_strategy: "));
  EXPECT_THAT(error_of({"--evaluation_strategy"}), HasSubstr("argument --evaluation_strategy: "));
  try {
    parse_json_flags(small_table(), R"({"evaluation_strategy": "often"})", "job.json");
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("argument --evaluation_strategy: "));
  }
}

TEST(Grammar, FlagsThatAreTrueByDefaultHaveANegation) {
  EXPECT_EQ(read({"--no_logging_nan_inf_filter"}), (Json{{"logging_nan_inf_filter", false}}));
  EXPECT_EQ(read({"--no-logging-nan-inf-filter"}), (Json{{"logging_nan_inf_filter", false}}));
  EXPECT_THAT(error_of({"--no_logging_nan_inf_filter=true"}),
              HasSubstr("argument --no_logging_nan_inf_filter: takes no value"));
  EXPECT_THAT(error_of({"--no_do_train"}), HasSubstr("unknown argument"));
}

TEST(Grammar, OptionalBoolsNeedAValue) {
  EXPECT_EQ(read({"--greater_is_better", "true"}), (Json{{"greater_is_better", true}}));
  EXPECT_THAT(error_of({"--greater_is_better"}), HasSubstr("expected a value: true or false"));
  EXPECT_THAT(error_of({"--greater_is_better", "--do_train"}), HasSubstr("expected a value"));
}

TEST(Grammar, NumbersMayBeNegativeAndHaveUnderscores) {
  EXPECT_EQ(read({"--max_steps", "-1"}), (Json{{"max_steps", -1}}));
  EXPECT_EQ(read({"--learning_rate", "-1e-5"}), (Json{{"learning_rate", -1e-5}}));
  EXPECT_EQ(read({"--seed", "1_000"}), (Json{{"seed", 1000}}));
  EXPECT_THAT(error_of({"--seed", "_1"}), HasSubstr("invalid integer: '_1'"));
  EXPECT_THAT(error_of({"--seed", "1.5"}), HasSubstr("argument --seed: invalid integer: '1.5'"));
  EXPECT_THAT(error_of({"--seed", "99999999999999999999"}), HasSubstr("invalid integer"));
  EXPECT_THAT(error_of({"--seed", "-1"}), HasSubstr("-1 is out of range, expected at least 0"));
  EXPECT_THAT(error_of({"--learning_rate", "fast"}), HasSubstr("invalid number: 'fast'"));
  EXPECT_THAT(error_of({"--learning_rate", "nan"}), HasSubstr("invalid number"));
  EXPECT_THAT(error_of({"--learning_rate"}),
              HasSubstr("argument --learning_rate: expected a value"));
}

TEST(Grammar, ListsTakeAllWordsUpToTheNextFlag) {
  EXPECT_EQ(read({"--report_to", "a", "b", "--do_train"}),
            (Json{{"report_to", {"a", "b"}}, {"do_train", true}}));
  EXPECT_EQ(read({"--report_to=a"}), (Json{{"report_to", {"a"}}}));
  EXPECT_THAT(error_of({"--report_to"}), HasSubstr("expected at least one value"));
}

TEST(Grammar, TextsMayStartWithADashWhenTheyHaveSpaces) {
  EXPECT_EQ(read({"--run_name", "--my run"}), (Json{{"run_name", "--my run"}}));
  EXPECT_EQ(read({"--run_name=--mine"}), (Json{{"run_name", "--mine"}}));
  EXPECT_EQ(read({"--debug", "--do_train"}), (Json{{"debug", "true"}, {"do_train", true}}));
}

TEST(Grammar, DictionariesInlineOrFromAFile) {
  testing::TemporaryFolder folder;
  write_file(folder / "kwargs.json", R"({"power": "2", "deep": {"on": "true"}})");
  const Json expected = {{"lr_scheduler_kwargs", {{"power", 2}, {"deep", {{"on", true}}}}}};
  EXPECT_EQ(read({"--lr_scheduler_kwargs", (folder / "kwargs.json").string()}), expected);
  EXPECT_EQ(read({"--lr_scheduler_kwargs", R"({"power": "2", "deep": {"on": "True"}})"}), expected);
  EXPECT_EQ(read({"--lr_scheduler_kwargs", R"({"a": "0.5", "b": "x", "c": "1.2.3"})"}),
            (Json{{"lr_scheduler_kwargs", {{"a", 0.5}, {"b", "x"}, {"c", "1.2.3"}}}}));
  EXPECT_THAT(error_of({"--lr_scheduler_kwargs", "{broken"}),
              HasSubstr("the value is not a JSON object"));
  EXPECT_THAT(error_of({"--lr_scheduler_kwargs", "/no/such.json"}),
              HasSubstr("neither inline JSON"));
}

// The reason why a flag is refused must not hide behind what is wrong with its value.
TEST(Grammar, DictionariesOfRefusedFlagsAreNotLookedAt) {
  EXPECT_EQ(read({"--deepspeed", "/no/such.json"}), (Json{{"deepspeed", "/no/such.json"}}));
  EXPECT_EQ(read({"--deepspeed", "{\"stage\": 2}"}), (Json{{"deepspeed", {{"stage", 2}}}}));
  EXPECT_EQ(read({"--deepspeed", ""}), (Json{{"deepspeed", Json::object()}}));
}

TEST(Grammar, ChoicesThatTakeTruthValues) {
  const auto value = [](const std::vector<std::string>& words) {
    return read(words).at("include_num_input_tokens_seen");
  };
  const std::string name = "--include_num_input_tokens_seen";
  EXPECT_EQ(value({name}), "all");
  for (const char* yes : {"TRUE", "True", "t", "Y", "yes", "1"})
    EXPECT_EQ(value({name, yes}), "all") << yes;
  for (const char* no : {"FALSE", "f", "N", "NO", "no", "0"})
    EXPECT_EQ(value({name, no}), "no") << no;
  EXPECT_EQ(value({name, "non_padding"}), "non_padding");
  EXPECT_THAT(error_of({name, "some"}), HasSubstr("(choose from no, all, non_padding)"));
  EXPECT_THAT(error_of({"--eval_strategy", "true"}), HasSubstr("invalid choice"));
}

TEST(Grammar, ChoicesNameTheirValues) {
  EXPECT_THAT(
      error_of({"--eval_strategy", "step"}),
      AllOf(HasSubstr("argument --eval_strategy: invalid choice: 'step'"),
            HasSubstr("did you mean 'steps'?"), HasSubstr("(choose from no, steps, epoch)")));
}

TEST(Grammar, AmbiguousPrefixListsItsCandidates) {
  EXPECT_THAT(error_of({"--eval_st", "steps"}),
              AllOf(HasSubstr("ambiguous flag: --eval_st"), HasSubstr("--eval_strategy"),
                    HasSubstr("--eval_steps")));
  // Two spellings of one flag are not ambiguity; a complete name wins over a longer one.
  EXPECT_EQ(read({"--evaluat", "steps"}), (Json{{"eval_strategy", "steps"}}));
  EXPECT_EQ(read({"--no", "--do_train"}),
            (Json{{"logging_nan_inf_filter", false}, {"do_train", true}}));
}

TEST(Grammar, UnknownArgumentsAreNamedTogetherWithSuggestions) {
  const std::string message = error_of(
      {"--lerning_rate", "1", "--do_train", "--frobnicate=x", "-x", "--do_eval", "true", "stray"});
  EXPECT_THAT(message,
              AllOf(HasSubstr("unknown arguments:"),
                    HasSubstr("--lerning_rate (did you mean --learning_rate?)"),
                    HasSubstr("--frobnicate (no similar flag)"), HasSubstr("-x (no similar flag)"),
                    HasSubstr("'stray' follows no flag that takes it")));
  EXPECT_THAT(message, Not(HasSubstr("do_train (")));
  EXPECT_THAT(error_of({"--evaluation_stratgy", "no"}), HasSubstr("--evaluation_strategy"));
}

TEST(JsonFlags, TakesTypedValuesAndTexts) {
  const FlagTable table = small_table();
  Json values = Json::object();
  for (const Given& given :
       parse_json_flags(table, R"({"do_train": true, "seed": "7", "learning_rate": 1,
         "report_to": ["a"], "evaluation_strategy": "epoch", "eval_steps": null, "lr_scheduler_kwargs": {"a": "1"}})",
                        "job.json")) {
    values[std::string(given.flag->name)] = given.value;
  }
  EXPECT_EQ(values, (Json{{"do_train", true},
                          {"seed", 7},
                          {"learning_rate", 1.0},
                          {"report_to", {"a"}},
                          {"eval_strategy", "epoch"},
                          {"lr_scheduler_kwargs", {{"a", 1}}}}));
}

TEST(JsonFlags, Refuses) {
  const auto error_of_json = [](const char* text) -> std::string {
    try {
      parse_json_flags(small_table(), text, "job.json");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(
      error_of_json(R"({"sed": 1, "x": 2})"),
      AllOf(HasSubstr("job.json"), HasSubstr("--sed (did you mean --seed?)"), HasSubstr("--x")));
  EXPECT_THAT(error_of_json("{"), HasSubstr("job.json: not valid JSON"));
  EXPECT_THAT(error_of_json("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_of_json(R"({"seed": []})"), HasSubstr("wrong type: []"));
  EXPECT_THAT(error_of_json(R"({"seed": 1.5})"), HasSubstr("invalid integer"));
  EXPECT_THAT(error_of_json(R"({"eval_strategy": "often"})"), HasSubstr("invalid choice"));
}

TEST(Suggest, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
}

TEST(Suggest, KeepsQuietWhenNothingIsNear) {
  const std::vector<std::string> names = {"seed", "learning_rate"};
  EXPECT_EQ(nearest("sede", names), "seed");
  EXPECT_EQ(nearest("zzzzzzz", names), std::nullopt);
  EXPECT_EQ(nearest("x", {}), std::nullopt);
}

}  // namespace
}  // namespace tandem::flags
