// Every file of a checkpoint in every state in which a resumed run cannot read it.
#include "tandem/trainer/checkpoint_damage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/trainer/checkpoint.h"
#include "tandem/trainer/checkpoint_manifest.h"
#include "tandem/trainer/resume_state.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Damage {
  const char* name;
  const char* found;  // in the message, if the file's form shows it; else that of its reader
  std::function<void(const fs::path&)> make;
};

void replace_by(const fs::path& file, mode_t kind) {
  fs::remove(file);
  ASSERT_EQ(::mknod(file.c_str(), kind | 0600, 0), 0);
}

const std::vector<Damage>& damages() {
  static const std::vector<Damage> all = {
      {"fifo", "it is a FIFO, expected a regular file",
       [](const fs::path& file) { replace_by(file, S_IFIFO); }},
      {"socket", "it is a socket, expected a regular file",
       [](const fs::path& file) { replace_by(file, S_IFSOCK); }},
      {"directory", "it is a directory, expected a regular file",
       [](const fs::path& file) {
         fs::remove(file);
         fs::create_directory(file);
       }},
      {"device", "it is a device, expected a regular file",
       [](const fs::path& file) {
         fs::remove(file);
         fs::create_symlink("/dev/zero", file);
       }},
      {"dangling link", "it is a link to a missing file",
       [](const fs::path& file) {
         fs::remove(file);
         fs::create_symlink("nowhere", file);
       }},
      {"empty", nullptr, [](const fs::path& file) { fs::resize_file(file, 0); }},
      {"truncated", nullptr,
       [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); }},
      {"one byte short", nullptr,
       [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 2); }},
  };
  return all;
}

class CheckpointDamage : public ::testing::Test {
 protected:
  // Hugging Face's checkpoint of the goldens; tandem's own have two files more.
  void make_checkpoint(bool own) {
    fs::remove_all(checkpoint());
    fs::copy(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/hf_checkpoint/checkpoint-10",
             checkpoint());
    if (!own) return;
    ResumeState resume;
    resume.shard_loss_since_log = {0.0};
    write_file(checkpoint() / "tandem_state.json", resume.to_json());
    write_manifest(checkpoint());
  }
  fs::path checkpoint() const { return folder_ / "checkpoint-10"; }

  void expect_found(const Damage& damage, const std::string& file) {
    SCOPED_TRACE(fmt::format("{}: {}", file, damage.name));
    damage.make(checkpoint() / file);
    const auto found = find_damage(checkpoint());
    ASSERT_TRUE(found.has_value());
    EXPECT_THAT(*found, HasSubstr(file));
    EXPECT_THAT(*found, HasSubstr(damage.found == nullptr ? "" : damage.found));
    EXPECT_THROW(require_undamaged(checkpoint()), std::exception);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(CheckpointDamage, IsFoundInEveryFileOfAnOwnOne) {
  for (const Damage& damage : damages()) {
    for (const char* file : {"manifest.json", "trainer_state.json", "tandem_state.json",
                             "optimizer.pt", "model.safetensors", "scheduler.pt"}) {
      make_checkpoint(true);
      ASSERT_EQ(find_damage(checkpoint()), std::nullopt);
      expect_found(damage, file);
    }
  }
}

TEST_F(CheckpointDamage, IsFoundWithoutAManifest) {
  for (const bool own : {false, true}) {
    for (const Damage& damage : damages()) {
      for (const char* file :
           {"trainer_state.json", "tandem_state.json", "optimizer.pt", "model.safetensors"}) {
        if (!own && file == std::string_view("tandem_state.json")) continue;
        make_checkpoint(own);
        fs::remove(checkpoint() / "manifest.json");
        ASSERT_EQ(find_damage(checkpoint()), std::nullopt);
        expect_found(damage, file);
      }
    }
  }
}

// A file that the manifest lists and no resumed run reads must be as it was written, too.
TEST_F(CheckpointDamage, IsFoundInOtherFilesThatTheManifestLists) {
  for (const Damage& damage : damages()) {
    SCOPED_TRACE(damage.name);
    make_checkpoint(true);
    damage.make(checkpoint() / "vocab.txt");
    EXPECT_THAT(find_damage(checkpoint()).value_or(""), HasSubstr("vocab.txt"));
  }
}

TEST_F(CheckpointDamage, OfUnlistedFilesDoesNotCount) {
  make_checkpoint(true);
  ASSERT_EQ(::mkfifo((checkpoint() / "notes").c_str(), 0600), 0);
  fs::create_directory(checkpoint() / "global_step10");
  EXPECT_EQ(find_damage(checkpoint()), std::nullopt);
}

TEST_F(CheckpointDamage, OfOneWithoutAnOptimizerIsNone) {
  make_checkpoint(false);
  fs::remove(checkpoint() / "optimizer.pt");  // --save_only_model
  EXPECT_EQ(find_damage(checkpoint()), std::nullopt);
}

}  // namespace
}  // namespace tandem::trainer
