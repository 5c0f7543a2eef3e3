// Tests of the trainer's arithmetic and files: plans, trainer_state.json, checkpoint directories.
// Whole runs are tested in tests/e2e.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/test_models.h"
#include "tandem/trainer/checkpoint.h"
#include "tandem/trainer/evaluation.h"
#include "tandem/trainer/trainer_state.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrainingArguments arguments(int batch, double epochs, int accumulation = 1) {
  TrainingArguments result;
  result.per_device_train_batch_size = batch;
  result.num_train_epochs = epochs;
  result.gradient_accumulation_steps = accumulation;
  return result;
}

TEST(TrainingPlan, StepsOfTheGuidesJob) {
  EXPECT_EQ(make_training_plan(arguments(12, 2), 4457, 1).total_steps,
            744);  // the golden trajectory
  EXPECT_EQ(make_training_plan(arguments(6, 2), 4457, 2).total_steps, 744);
  EXPECT_EQ(make_training_plan(arguments(12, 1), 88524, 1).total_steps,
            7377);  // SQuAD v1.1, bert-uncased
}

TEST(TrainingPlan, ThePartialGroupOfAnEpochIsAnUpdate) {
  // 11 batches: 3 updates of 4, 4, 3.
  const TrainingPlan plan = make_training_plan(arguments(10, 3, 4), 105, 1);
  EXPECT_EQ(plan.batches_per_epoch, 11);
  EXPECT_EQ(plan.updates_per_epoch, 3);
  EXPECT_EQ(plan.total_steps, 9);
  EXPECT_EQ(plan.total_train_batch_size(), 40);
}

TEST(TrainingPlan, FractionsAndMaxSteps) {
  EXPECT_EQ(make_training_plan(arguments(10, 0.5), 95, 1).total_steps, 5);
  TrainingArguments limited = arguments(10, 3);
  limited.max_steps = 25;
  limited.save_steps = 0.1;
  limited.logging_steps = 7;
  limited.warmup_ratio = 0.1;
  const TrainingPlan plan = make_training_plan(limited, 95, 1);
  EXPECT_EQ(plan.total_steps, 25);
  EXPECT_EQ(plan.num_epochs, 3);
  EXPECT_EQ(plan.save_steps, 3);  // ceil of a share
  EXPECT_EQ(plan.logging_steps, 7);
  EXPECT_EQ(plan.warmup_steps, 3);
  limited.warmup_steps = 5;
  EXPECT_EQ(make_training_plan(limited, 95, 1).warmup_steps, 5);  // steps win over the ratio
}

TEST(TrainingPlan, DropLastMayLeaveNothing) {
  TrainingArguments dropping = arguments(10, 1);
  dropping.dataloader_drop_last = true;
  EXPECT_EQ(make_training_plan(dropping, 95, 1).batches_per_epoch, 9);
  EXPECT_EQ(make_training_plan(dropping, 95, 2).batches_per_epoch, 4);
  EXPECT_THROW(make_training_plan(dropping, 9, 1), ConfigError);
  EXPECT_THROW(make_training_plan(arguments(10, 1), 0, 1), ConfigError);
}

TEST(TrainingPlan, NoEpochIsNoStep) {
  const TrainingPlan plan = make_training_plan(arguments(10, 0), 95, 1);
  EXPECT_EQ(plan.total_steps, 0);
  EXPECT_EQ(plan.num_epochs, 0);
  EXPECT_EQ(plan.num_train_samples, 0);
}

// As the Trainer reads it, but for 0, which it takes for one step at the end of the schedule.
TEST(TrainingPlan, NegativeMaxStepsCountEpochs) {
  TrainingArguments unlimited = arguments(10, 2);
  for (const int steps : {-1, -5, -100}) {
    unlimited.max_steps = steps;
    EXPECT_EQ(make_training_plan(unlimited, 95, 1).total_steps, 20) << steps;
  }
  unlimited.max_steps = 0;
  EXPECT_THAT([&] { make_training_plan(unlimited, 95, 1); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("--max_steps: found 0, expected")));
}

TEST(TrainingPlan, EveryIntervalBelowOneIsAShare) {
  EXPECT_EQ(resolve_steps(0.25, 10), 3);
  EXPECT_EQ(resolve_steps(1, 10), 1);
  EXPECT_EQ(resolve_steps(0, 10), 0);
  EXPECT_EQ(resolve_steps(-1, 10), -10);
  EXPECT_EQ(resolve_steps(-0.25, 10), -2);
  EXPECT_EQ(resolve_steps(-1, 0), 0);
}

TEST(TrainingPlan, UnevenBatchesNeedOneForEveryShard) {
  TrainingArguments arguments;
  arguments.per_device_train_batch_size = 2;
  arguments.even_batches = false;
  EXPECT_EQ(make_training_plan(arguments, 11, 2).batches_per_epoch, 3);
  EXPECT_EQ(make_training_plan(arguments, 9, 1).batches_per_epoch, 5);
  EXPECT_THAT([&] { make_training_plan(arguments, 10, 2); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(
                  "the last 1 of the 5 batches of an epoch are too few for 2 ranks")));
  arguments.dataloader_drop_last = true;
  EXPECT_EQ(make_training_plan(arguments, 10, 2).batches_per_epoch, 2);
}

TEST(TrainerState, SurvivesTheRoundTrip) {
  TrainerState state;
  state.epoch = 1.5;
  state.global_step = 30;
  state.max_steps = 40;
  state.best_metric = 81.25;
  state.best_model_checkpoint = "out/checkpoint-20";
  state.log_history.push_back({{"loss", 1.25}, {"step", 10}, {"epoch", 0.5}});
  const std::string text = state.to_json();
  EXPECT_TRUE(text.ends_with("}\n"));
  EXPECT_THAT(text, HasSubstr("  \"best_metric\": 81.25,\n"));
  const TrainerState read = TrainerState::parse(text, "here");
  EXPECT_EQ(read.to_json(), text);
  EXPECT_EQ(read.best_model_checkpoint, state.best_model_checkpoint);
}

TEST(TrainerState, WithoutABestModelItsFieldsAreNull) {
  const std::string text = TrainerState{}.to_json();
  EXPECT_THAT(text, ::testing::HasSubstr("\"best_global_step\": null,\n  \"best_metric\": null,"));
  EXPECT_EQ(TrainerState::parse(text, "here").best_global_step, 0);
}

TEST(TrainerState, KeepsTheTrainersControlOfTheLastCheckpoint) {
  const auto control = [](const TrainerState& state) {
    return parse_json(state.to_json()).at("stateful_callbacks").at("TrainerControl").at("args");
  };
  TrainerState state;
  EXPECT_EQ(control(state).at("should_save"), false);
  EXPECT_EQ(control(state).at("should_training_stop"), false);
  for (const bool last : {false, true}) {
    state.should_save = true;
    state.should_training_stop = last;
    const TrainerState read = TrainerState::parse(state.to_json(), "here");
    EXPECT_EQ(control(read).at("should_save"), true);
    EXPECT_EQ(control(read).at("should_training_stop"), last);
  }
  // Versions of transformers before 4.42 wrote none.
  const TrainerState old = TrainerState::parse(
      R"({"epoch": 1.0, "global_step": 2, "max_steps": 2, "num_train_epochs": 1,
          "log_history": []})",
      "here");
  EXPECT_FALSE(old.should_save);
}

// Python's json module writes and reads them, and a loss may be one.
TEST(TrainerState, KeepsNumbersThatAreNotFinite) {
  const std::string text =
      R"({"best_metric": NaN, "epoch": 1.0, "global_step": 3, "log_history": [)"
      R"({"grad_norm": Infinity, "loss": NaN, "step": 1}, {"loss": -Infinity, "step": 2},)"
      R"( {"note": "NaN \" Infinity", "step": 3}], "max_steps": 3, "num_train_epochs": 1})";
  const TrainerState state = TrainerState::parse(text, "here");
  EXPECT_TRUE(std::isnan(state.log_history.at(0).at("loss").get<double>()));
  EXPECT_TRUE(std::isnan(*state.best_metric));
  EXPECT_EQ(state.log_history.at(2).at("note"), "NaN \" Infinity");
  const std::string written = state.to_json();
  for (const char* value : {"\"grad_norm\": Infinity,", "\"loss\": NaN,", "\"loss\": -Infinity,",
                            "\"best_metric\": NaN,"})
    EXPECT_THAT(written, HasSubstr(value));
  EXPECT_EQ(TrainerState::parse(written, "here").to_json(), written);
  for (const char* damaged :
       {R"({"epoch": Nan})", R"({"epoch": 1, "global_step": NaN, "max_steps": 1})",
        R"({"epoch": +Infinity})", R"({"epoch": NaN)", R"({NaN: 1})"})
    EXPECT_THROW(TrainerState::parse(damaged, "here"), DataError) << damaged;
}

TEST(ResumeState, KeepsNumbersThatAreNotFinite) {
  ResumeState state;
  state.logical_shards = 2;
  state.gradient_accumulation_steps = state.per_device_train_batch_size = 1;
  state.shard_loss_since_log = {std::nan(""), 1.5};
  state.total_loss = std::numeric_limits<double>::infinity();
  const std::string text = state.to_json();
  EXPECT_EQ(ResumeState::parse(text, "here").to_json(), text);
}

TEST(TrainerState, CountsFromTheWholeNumberZero) {
  EXPECT_THAT(TrainerState{}.to_json(),
              ::testing::AllOf(HasSubstr("\"epoch\": 0,\n"), HasSubstr("\"total_flos\": 0,\n")));
}

TEST(TrainerState, BrokenTextIsNamed) {
  try {
    TrainerState::parse("{\"epoch\": 1", "out/checkpoint-1/trainer_state.json");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("out/checkpoint-1/trainer_state.json"));
  }
}

TEST(Checkpoint, FindsTheNewestCompleteOne) {
  const testing::TemporaryFolder folder;
  for (const auto* name :
       {"checkpoint-9", "checkpoint-10", "checkpoint-11", "tmp-checkpoint-12", "checkpoint-x"}) {
    std::filesystem::create_directories(folder / name);
  }
  EXPECT_FALSE(last_checkpoint(folder.path()).has_value());
  for (const auto* name : {"checkpoint-9", "checkpoint-10", "tmp-checkpoint-12"}) {
    write_file(folder / name / "trainer_state.json", "{}");
  }
  EXPECT_EQ(last_checkpoint(folder.path()),
            folder / "checkpoint-10");  // 11 has no state, 12 is unfinished
  remove_unfinished_checkpoints(folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder / "tmp-checkpoint-12"));
  EXPECT_EQ(checkpoint_step("a/checkpoint-500/"), 500);
  EXPECT_FALSE(checkpoint_step("a/checkpoint-").has_value());
}

std::vector<std::string> sorted_names(const std::filesystem::path& directory) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    found.push_back(entry.path().filename());
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Checkpoint, ThoseOfAnotherRunAreSetAside) {
  const testing::TemporaryFolder folder;
  const auto make = [&](std::initializer_list<int> steps) {
    for (const int step : steps)
      std::filesystem::create_directories(folder / fmt::format("checkpoint-{}", step));
  };
  make({3, 5, 20});
  // A run that resumes from step 5 keeps what led there.
  set_stale_checkpoints_aside(folder.path(), folder / "checkpoint-5");
  EXPECT_THAT(sorted_names(folder.path()),
              ElementsAre("checkpoint-3", "checkpoint-5", "stale-checkpoint-20"));
  EXPECT_FALSE(last_checkpoint(folder.path()).has_value());  // these have no state
  // A run that begins anew, or with another directory's checkpoint, keeps the newest one.
  make({20});
  const SetAside stale = set_stale_checkpoints_aside(folder.path(), std::nullopt);
  EXPECT_EQ(stale.kept, folder / "stale-checkpoint-20");
  EXPECT_THAT(stale.removed, ElementsAre(folder / "stale-checkpoint-20", folder / "checkpoint-3",
                                         folder / "checkpoint-5"));
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("stale-checkpoint-20"));
  make({1});
  const testing::TemporaryFolder elsewhere;
  std::filesystem::create_directories(elsewhere / "checkpoint-7");
  set_stale_checkpoints_aside(folder.path(), elsewhere / "checkpoint-7");
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("stale-checkpoint-1"));
}

TEST(Checkpoint, WhatIsSetAsideStaysUntilAnotherOneIs) {
  const testing::TemporaryFolder folder;
  for (const char* name :
       {"stale-checkpoint-4", "stale-checkpoint-4-2", "damaged-checkpoint-4", "checkpoint-2"})
    std::filesystem::create_directories(folder / name);
  // Nothing new is stale: the run resumes from its newest checkpoint.
  EXPECT_FALSE(set_stale_checkpoints_aside(folder.path(), folder / "checkpoint-2").kept);
  EXPECT_EQ(sorted_names(folder.path()).size(), 4);
  // The checkpoint that a run resumes from is not removed, whatever its name.
  set_stale_checkpoints_aside(folder.path(), folder / "stale-checkpoint-4");
  EXPECT_THAT(sorted_names(folder.path()),
              ElementsAre("damaged-checkpoint-4", "stale-checkpoint-2", "stale-checkpoint-4"));
}

TEST(Checkpoint, TheNewestCompleteOneIsSetAside) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"checkpoint-2", "checkpoint-4", "checkpoint-6"})
    std::filesystem::create_directories(folder / name);
  for (const char* name : {"checkpoint-2", "checkpoint-4"})
    write_file(folder / name / "trainer_state.json", "{}");
  set_stale_checkpoints_aside(folder.path(), std::nullopt);
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("stale-checkpoint-4"));
}

TEST(Checkpoint, RotationKeepsTheNewestAndTheBest) {
  const testing::TemporaryFolder folder;
  for (const int step : {1, 2, 3, 4})
    std::filesystem::create_directories(folder / fmt::format("checkpoint-{}", step));
  rotate_checkpoints(folder.path(), 2, (folder / "checkpoint-1").native());
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("checkpoint-1", "checkpoint-4"));
  rotate_checkpoints(folder.path(), 1, (folder / "checkpoint-1").native());
  EXPECT_THAT(sorted_names(folder.path()),
              ElementsAre("checkpoint-1", "checkpoint-4"));  // as HF: the best and the newest
  rotate_checkpoints(folder.path(), 1, std::nullopt);
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("checkpoint-4"));
}

TEST(Checkpoint, AnOptimizerInSafetensorsIsStillRead) {
  const models::EncoderModel model(models::testing::tiny_config(models::kBert),
                                   models::testing::make_head);
  const auto optimizer = optim::make_optimizer({}, model.layout());
  std::vector<float> weights(model.layout().size(), 1.0f);
  std::vector<float> kept(optimizer->state_elements(), 2.0f), read(kept.size());
  const testing::TemporaryFolder folder;
  std::vector<formats::TensorView> tensors;
  for (const nn::ParameterSpec& parameter : model.layout().parameters()) {
    tensors.push_back(
        {parameter.name, formats::DType::kF32, parameter.shape,
         std::as_bytes(std::span(weights).subspan(parameter.offset, parameter.size))});
  }
  formats::write_safetensors(folder / "model.safetensors", tensors, {});
  tensors.clear();
  for (const optim::StateTensor& tensor : optimizer->state_tensors()) {
    tensors.push_back({tensor.name, formats::DType::kF32, tensor.shape,
                       std::as_bytes(std::span(kept).subspan(tensor.offset, tensor.size))});
  }
  formats::write_safetensors(folder / "optimizer.safetensors", tensors, {});
  load_checkpoint_arenas(
      folder.path(), model.layout(),
      {.weights = weights, .optimizer_state = read, .state_tensors = optimizer->state_tensors()});
  for (const optim::StateTensor& tensor : optimizer->state_tensors())
    EXPECT_EQ(read[tensor.offset], 2.0f) << tensor.name;
}

TEST(RoundDigits, AsPython) {
  EXPECT_EQ(round_digits(1.23456, 4), 1.2346);
  EXPECT_EQ(round_digits(2.5, 0), 2.0);  // half to even
  EXPECT_EQ(round_digits(0.12345, 3), 0.123);
}

}  // namespace
}  // namespace tandem::trainer
