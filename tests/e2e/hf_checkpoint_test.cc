// A run begun by the Hugging Face Trainer is resumed here: tests/parity/make_hf_checkpoint.py made
// the checkpoint and the losses that the Trainer had behind it.
#include <cmath>
#include <set>

#include "e2e/job.h"
#include "tandem/core/json.h"
#include "tandem/formats/torch_file.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

class HuggingFaceCheckpoint : public JobTest {
 protected:
  static fs::path golden() {
    return fs::path(TANDEM_SOURCE_DIR) / "tests" / "parity" / "golden" / "hf_checkpoint";
  }
  // The Trainer's arguments in make_hf_checkpoint.py.
  Words resume_command(const fs::path& checkpoint, const std::string& output,
                       const Words& more = {}) const {
    return with({kProgram,
                 "run_qa",
                 "--model_name_or_path",
                 checkpoint.native(),
                 "--resume_from_checkpoint",
                 checkpoint.native(),
                 "--train_file",
                 (kDemo / "train.json").native(),
                 "--output_dir",
                 path(output).native(),
                 "--do_train",
                 "--max_train_samples",
                 "60",
                 "--per_device_train_batch_size",
                 "4",
                 "--max_steps",
                 "20",
                 "--learning_rate",
                 "1e-2",
                 "--weight_decay",
                 "0.01",
                 "--lr_scheduler_type",
                 "cosine",
                 "--warmup_steps",
                 "3",
                 "--max_seq_length",
                 "64",
                 "--doc_stride",
                 "24",
                 "--pad_to_max_length",
                 "true",
                 "--logging_steps",
                 "1"},
                more);
  }
};

TEST_F(HuggingFaceCheckpoint, ContinuesWithTheTrainersLosses) {
  const ProcessResult result = run_ok(resume_command(golden() / "checkpoint-10", "out"));
  EXPECT_NE(result.out.find("was written by Hugging Face's Trainer"), std::string::npos)
      << result.out;
  const auto want = nlohmann::json::parse(read_file(golden() / "losses.json"));
  const auto state = nlohmann::json::parse(read_file(path("out") / "trainer_state.json"));
  int compared = 0;
  for (const auto& entry : state["log_history"]) {
    if (!entry.contains("loss")) continue;
    const auto step = entry["step"].get<std::size_t>();
    // Steps up to 10 are the Trainer's own entries.
    EXPECT_NEAR(entry["loss"].get<double>(), want["losses"][step - 1].get<double>(), 1e-4) << step;
    EXPECT_NEAR(entry["grad_norm"].get<double>(), want["grad_norms"][step - 1].get<double>(), 1e-4)
        << step;
    ++compared;
  }
  EXPECT_EQ(compared, 20);
}

// Keys in order, types and plain values; type and shape of tensors. `skip`: values that follow from
// the step. param_names are ours alone.
void expect_same_shape(const formats::TorchValue& ours, const formats::TorchValue& theirs,
                       const std::set<std::string_view>& skip) {
  ASSERT_EQ(ours.type_name(), theirs.type_name()) << ours.where();
  if (ours.is_tensor()) {
    EXPECT_EQ(ours.as_tensor().dtype, theirs.as_tensor().dtype) << ours.where();
    EXPECT_EQ(ours.as_tensor().shape, theirs.as_tensor().shape) << ours.where();
  } else if (ours.is_dict()) {
    auto mine = ours.items();
    std::erase_if(mine, [](const auto& item) {
      return item.first.is_string() && item.first.as_string() == "param_names";
    });
    const auto others = theirs.items();
    ASSERT_EQ(mine.size(), others.size()) << ours.where();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      ASSERT_EQ(mine[i].first.is_string(), others[i].first.is_string()) << ours.where();
      if (mine[i].first.is_string()) {
        ASSERT_EQ(mine[i].first.as_string(), others[i].first.as_string()) << ours.where();
        if (skip.contains(mine[i].first.as_string())) continue;
      } else {
        ASSERT_EQ(mine[i].first.as_int(), others[i].first.as_int()) << ours.where();
      }
      expect_same_shape(mine[i].second, others[i].second, skip);
    }
  } else if (ours.is_list()) {
    ASSERT_EQ(ours.size(), theirs.size()) << ours.where();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      expect_same_shape(ours[at], theirs[at], skip);
    }
  } else if (ours.is_number()) {
    EXPECT_EQ(ours.as_double(), theirs.as_double()) << ours.where();
  } else if (ours.type_name() == "a bool") {
    EXPECT_EQ(ours.as_bool(), theirs.as_bool()) << ours.where();
  }
}

// The way back: what the Trainer would resume from here is of the form of its own files. That it
// does is shown by tests/parity/trainer_resumes.py, with Python.
TEST_F(HuggingFaceCheckpoint, OptimizerAndScheduleAreWrittenAsTheTrainerDoes) {
  run_ok(resume_command(golden() / "checkpoint-10", "out"));
  const fs::path ours = path("out") / "checkpoint-20";
  const formats::TorchFile optimizer(ours / "optimizer.pt");
  const formats::TorchFile official(golden() / "checkpoint-10" / "optimizer.pt");
  expect_same_shape(optimizer.root(), official.root(), {"lr"});
  EXPECT_EQ(optimizer.root()["state"].size(), 39u);
  float step = 0;
  formats::copy_to_float(optimizer.root()["state"][0]["step"].as_tensor(), std::span(&step, 1));
  EXPECT_EQ(step, 20);
  const formats::TorchFile schedule(ours / "scheduler.pt");
  const formats::TorchFile official_schedule(golden() / "checkpoint-10" / "scheduler.pt");
  expect_same_shape(schedule.root(), official_schedule.root(),
                    {"last_epoch", "_step_count", "_last_lr"});
  EXPECT_EQ(schedule.root()["last_epoch"].as_int(), 20);
  EXPECT_EQ(schedule.root()["_step_count"].as_int(), 21);
  EXPECT_EQ(schedule.root()["_last_lr"][0].as_double(), 0);  // the end of the cosine
}

// One rank wrote it; if two continue, a step has two batches.
TEST_F(HuggingFaceCheckpoint, MoreRanksContinueWithIt) {
  const Words command = resume_command(golden() / "checkpoint-10", "ranks");
  run_ranks(command, 2);
  const std::string logged =
      run_ok(resume_command(golden() / "checkpoint-10", "shards", {"--logical_shards", "2"})).err;
  EXPECT_NE(
      logged.find("was written with 1: the run continues at step 10 of 20 with 8 features a step "
                  "instead of 4"),
      std::string::npos)
      << logged;
  expect_equal_results("ranks", "shards");
  EXPECT_EQ(losses("ranks").size(), 20u);
}

TEST_F(HuggingFaceCheckpoint, NamesTheArgumentsThatDiffer) {
  const fs::path checkpoint = path("checkpoint-10");
  fs::copy(golden() / "checkpoint-10", checkpoint, fs::copy_options::recursive);
  fs::copy(golden().parent_path() / "torch" / "training_args.bin", checkpoint);
  const std::string text =
      run_ok(resume_command(checkpoint, "out", {"--logging_steps", "3", "--group_by_length"})).err;
  for (const char* line :
       {"The following arguments do not match the ones within",
        "\n  logging_steps: 3 (from args) != 1 (from trainer_state.json)",
        "save_steps: 500 (from args) != 10 (from trainer_state.json)",
        "gradient_accumulation_steps: 1 (from args) != 2 (from training_args.bin)",
        "data_seed: 42 (from args) != 7 (from training_args.bin)",
        "group_by_length: True (from args) != False (from training_args.bin)"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  EXPECT_EQ(text.find("\n  seed:"), std::string::npos) << text;
  // Equal arguments are not worth a word, and a file that is not a pickle ends nothing.
  const Words equal = {"--gradient_accumulation_steps",
                       "2",
                       "--data_seed",
                       "7",
                       "--save_steps",
                       "10",
                       "--max_steps",
                       "11"};
  const std::string quiet = run_ok(resume_command(checkpoint, "equal", equal)).err;
  EXPECT_EQ(quiet.find("do not match"), std::string::npos) << quiet;
  write_file(checkpoint / "training_args.bin", "no pickle");
  const std::string broken = run_ok(resume_command(checkpoint, "broken", equal)).err;
  EXPECT_NE(broken.find("arguments of the run behind the checkpoint are not known: "),
            std::string::npos)
      << broken;
}

TEST_F(HuggingFaceCheckpoint, ASecondResumeIsTandemsOwn) {
  run_ok(resume_command(golden() / "checkpoint-10", "whole", {"--save_steps", "5"}));
  ASSERT_TRUE(fs::exists(path("whole") / "checkpoint-15" / "optimizer.pt"));
  run_ok(resume_command(path("whole") / "checkpoint-15", "again"));
  expect_equal_results("whole", "again");
}

TEST_F(HuggingFaceCheckpoint, AnotherOptimizersStateIsRefused) {
  const ProcessResult result =
      run(resume_command(golden() / "checkpoint-10", "out", {"--optim", "adagrad"}), {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("has no sum of"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("pass the --optim that the run had"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tandem::testing
