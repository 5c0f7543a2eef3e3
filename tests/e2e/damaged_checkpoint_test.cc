// Checkpoints that a disk or a copy has changed are detected before a run resumes from them.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "e2e/job.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DamagedCheckpoint : public JobTest {
 protected:
  static constexpr const char* kFiles[] = {"model.safetensors",  "optimizer.pt",
                                           "trainer_state.json", "tandem_state.json",
                                           "scheduler.pt",       "tokenizer.json"};

  // A run that left checkpoint-4, -8 and -12 in `output`.
  Words job(const std::string& output, const Words& more = {}) const {
    return train_command(output, with({"--save_steps", "4"}, more));
  }
  static void flip_a_bit(const fs::path& file) {
    std::string text = read_file(file);
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    write_file(file, text);
  }
  fs::path copy_of(const std::string& from, const std::string& to) const {
    fs::copy(path(from), path(to), fs::copy_options::recursive);
    return path(to);
  }
};

TEST_F(DamagedCheckpoint, IsSkippedUnlessItWasNamed) {
  run_ok(job("whole"));
  for (const char* file : kFiles) {
    SCOPED_TRACE(file);
    const fs::path output = copy_of("whole", "out");
    flip_a_bit(output / "checkpoint-12" / file);
    const std::string logged = run_ok(job("out", {"--save_total_limit", "1"})).err;
    EXPECT_THAT(logged, HasSubstr((output / "checkpoint-12" / file).native() + "' is damaged"));
    EXPECT_THAT(logged, HasSubstr("the run resumes from '" + (output / "checkpoint-8").native()));
    EXPECT_TRUE(fs::exists(output / "damaged-checkpoint-12"));
    EXPECT_TRUE(fs::exists(output / "checkpoint-12"));  // this run's
    EXPECT_TRUE(weights("out") == weights("whole"));
    fs::remove_all(output);
  }
}

// Each once ended the job or made it wait forever; src/tandem/trainer/checkpoint_damage_test.cc has
// the whole table.
TEST_F(DamagedCheckpoint, IsPassedOverWhateverIsInThePlaceOfItsFiles) {
  run_ok(job("whole"));
  struct Case {
    const char* file;
    bool has_manifest;
    void (*replace)(const fs::path&);
    const char* logged;
  };
  const auto fifo = [](const fs::path& file) {
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  };
  const auto directory = [](const fs::path& file) {
    fs::remove(file);
    fs::create_directory(file);
  };
  const auto cut_off = [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); };
  for (const Case& one : {Case{"manifest.json", true, fifo, "it is a FIFO"},
                          {"manifest.json", true, directory, "it is a directory"},
                          {"trainer_state.json", true, fifo, "it is a FIFO"},
                          {"trainer_state.json", false, cut_off, "is not a trainer_state.json"},
                          {"tandem_state.json", false, directory, "it is a directory"},
                          {"optimizer.pt", false, cut_off, "optimizer.pt"},
                          {"model.safetensors", false, cut_off, "model.safetensors"}}) {
    SCOPED_TRACE(one.file);
    const fs::path output = copy_of("whole", "out");
    if (!one.has_manifest) fs::remove(output / "checkpoint-12" / "manifest.json");
    one.replace(output / "checkpoint-12" / one.file);
    const std::string logged = run_ok(job("out")).err;
    EXPECT_THAT(logged, HasSubstr(one.logged));
    EXPECT_THAT(logged, HasSubstr("the run resumes from '" + (output / "checkpoint-8").native()));
    EXPECT_TRUE(fs::exists(output / "damaged-checkpoint-12"));
    EXPECT_TRUE(weights("out") == weights("whole"));
    fs::remove_all(output);
  }
}

TEST_F(DamagedCheckpoint, OfWhichNoneIsWholeEndsTheRun) {
  run_ok(job("out", {"--save_total_limit", "1"}));
  flip_a_bit(path("out") / "checkpoint-12" / "optimizer.pt");
  const ProcessResult result = run(job("out"), {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("optimizer.pt' is damaged: its CRC-32 is "));
  EXPECT_THAT(result.err, HasSubstr("restore one, or pass --overwrite_output_dir"));
  EXPECT_TRUE(fs::exists(path("out") / "checkpoint-12"));  // nothing was moved for nothing
}

TEST_F(DamagedCheckpoint, ThatWasNamedIsRefusedWithTheOneBeforeIt) {
  run_ok(job("whole"));
  const fs::path checkpoint = path("whole") / "checkpoint-12";
  flip_a_bit(checkpoint / "model.safetensors");
  const Words resume = {"--resume_from_checkpoint", checkpoint.native() + "/"};
  const ProcessResult result = run(job("out", resume), {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("model.safetensors' is damaged"));
  EXPECT_THAT(result.err, HasSubstr("pass --resume_from_checkpoint " +
                                    (path("whole") / "checkpoint-8").native()));
  // Removing the manifest accepts a deliberate change.
  flip_a_bit(checkpoint / "model.safetensors");
  flip_a_bit(checkpoint / "manifest.json");
  EXPECT_EQ(run(job("out", resume), {}).exit_code, 1);
  fs::remove(checkpoint / "manifest.json");
  run_ok(job("out", resume));
}

TEST_F(DamagedCheckpoint, IsNoticedWhenFilesAreMissingOrShort) {
  run_ok(job("whole"));
  const fs::path checkpoint = path("whole") / "checkpoint-12";
  fs::resize_file(checkpoint / "optimizer.pt", 1000);
  const Words resume = {"--resume_from_checkpoint", checkpoint.native()};
  EXPECT_THAT(run(job("out", resume), {}).err, HasSubstr("it has 1000 bytes, "));
  fs::remove(checkpoint / "optimizer.pt");
  EXPECT_THAT(run(job("out", resume), {}).err, HasSubstr("optimizer.pt' is missing"));
}

// Another task, other data or other labels in the output directory of the last run.
TEST_F(DamagedCheckpoint, OfAnotherJobIsRefusedWithWhatHelps) {
  const Words classification = {kProgram, "run_classification", "--model_name_or_path",
                                (kDemo / "model").native(), "--do_train"};
  const Words topics = {"--train_file",        (kDemo / "topics_train.csv").native(),
                        "--max_train_samples", "60",
                        "--max_steps",         "2",
                        "--save_steps",        "2",
                        "--output_dir",        path("topics").native()};
  const auto expect_refused = [&](const Words& flags, const std::string& reason) {
    const ProcessResult result = run(with(classification, flags));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr(reason),
                                  HasSubstr("; or change --output_dir, or pass "
                                            "--overwrite_output_dir to train from scratch")));
  };
  run_ok(job("questions"));
  expect_refused(with(topics, {"--output_dir", path("questions").native()}),
                 "model.safetensors' has no tensor 'classifier.weight'");
  expect_refused(
      with(topics, {"--output_dir", path("questions").native(), "--max_train_samples", "40"}),
      "was trained on other features");
  run_ok(with(classification, topics));
  write_file(path("two.csv"), "sentence,label\na,x\nb,y\nc,x\nd,y\n");
  expect_refused(with(topics, {"--train_file", path("two.csv").native()}),
                 "tensor 'classifier.weight' is F32 [18, 128], expected F32 [2, 128]");
  // A checkpoint that was named is meant.
  const Words named = {"--resume_from_checkpoint", (path("questions") / "checkpoint-12").native()};
  EXPECT_THAT(run(with(with(classification, topics), named)).err,
              AllOf(HasSubstr("has no tensor"), Not(HasSubstr("change --output_dir"))));
}

// Every checkpoint is written with a manifest: one without it, or with one that does not list what
// is read, may be damaged without notice.
TEST_F(DamagedCheckpoint, ThatCannotBeDetectedIsNamedUnchecked) {
  const std::string unchecked = "whether its files are as they were written is not checked";
  run_ok(job("whole"));
  EXPECT_THAT(run_ok(job("whole")).err, Not(HasSubstr(unchecked)));
  constexpr std::pair<const char*, const char*> kManifests[] = {
      {nullptr, "checkpoint-12' has no manifest.json"},
      {R"({"files": {}})",
       "manifest.json' does not list model.safetensors, optimizer.pt, tandem_state.json, "
       "trainer_state.json"}};
  for (const auto& [manifest, reason] : kManifests) {
    SCOPED_TRACE(reason);
    const fs::path checkpoint = copy_of("whole", "out") / "checkpoint-12";
    fs::remove(checkpoint / "manifest.json");
    if (manifest != nullptr) write_file(checkpoint / "manifest.json", manifest);
    flip_a_bit(checkpoint / "model.safetensors");
    EXPECT_THAT(run_ok(job("out")).err, AllOf(HasSubstr(reason), HasSubstr(unchecked)));
    const Words named = {"--resume_from_checkpoint", checkpoint.native()};
    EXPECT_THAT(run_ok(job("other", named)).err, AllOf(HasSubstr(reason), HasSubstr(unchecked)));
    fs::remove_all(path("out"));
    fs::remove_all(path("other"));
  }
}

}  // namespace
}  // namespace tandem::testing
