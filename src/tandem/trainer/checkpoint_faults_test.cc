// Writing a checkpoint on a disk that fails: the n-th call that changes the disk fails, or the
// process dies after it, or the power goes (what was not synced is lost), for every n. After each
// the folder holds a complete old or new checkpoint, and an error names a file of it. This
// program's own open, write, fsync, rename and so on stand in front of the C library's.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <set>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/trainer/checkpoint.h"
#include "tandem/trainer/python_checkpoint.h"

namespace {

enum class Fault { kNone, kError, kCrash, kPowerCut };
constexpr int kCrashed = 77;
constexpr int kNotCut = 78;  // a file that the power cut should have emptied could not be

// Changes made to the files of one folder.
struct Disk {
  bool watching = false;
  std::string folder;
  Fault fault = Fault::kNone;
  int at = 0;  // the call that fails, or after which the process dies, counted from 1
  int error = EIO;
  bool can_exchange = true;  // whether names can change places (renameat2)
  int calls = 0;
  std::map<int, std::string> open_files = {};
  std::set<std::string> unsynced = {};

  bool concerns(const char* path) const {
    return watching && std::string_view(path).starts_with(folder);
  }
  // Before a call: false when it is the one that fails.
  bool allowed() {
    ++calls;
    if (fault != Fault::kError || calls != at) return true;
    errno = error;
    return false;
  }
  // After a call.
  template <class T>
  T done(T result) {
    if (calls != at || (fault != Fault::kCrash && fault != Fault::kPowerCut)) return result;
    if (fault == Fault::kPowerCut) {
      for (const std::string& path : unsynced) {
        if (::truncate(path.c_str(), 0) != 0 && errno != ENOENT) ::_exit(kNotCut);
      }
    }
    ::_exit(kCrashed);
  }
  void forget() {
    watching = false;
    calls = 0;
    open_files.clear();
    unsynced.clear();
  }
};

Disk& disk() {
  static Disk one;
  return one;
}

std::string moved(const std::string& path, const std::string& from, const std::string& to) {
  return path == from || path.starts_with(from + "/") ? to + path.substr(from.size()) : path;
}

void note_rename(const std::string& from, const std::string& to, bool exchange) {
  const auto renamed = [&](const std::string& path) {
    const std::string there = moved(path, from, to);
    return exchange && there == path ? moved(path, to, from) : there;
  };
  std::set<std::string> unsynced;
  for (const std::string& path : disk().unsynced) unsynced.insert(renamed(path));
  disk().unsynced = unsynced;
  for (auto& [file, path] : disk().open_files) path = renamed(path);
}

template <class... Arguments>
int call(long number, Arguments... arguments) {
  return static_cast<int>(::syscall(number, arguments...));
}

// Newer processors' Linux has only the calls that name a folder.
int rename_as_asked(const char* from, const char* to) {
  return call(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const bool counts = disk().concerns(path) && (flags & O_CREAT) != 0;
  if (counts && !disk().allowed()) return -1;
  const int file = call(SYS_openat, AT_FDCWD, path, flags, mode);
  if (disk().concerns(path) && file >= 0) disk().open_files[file] = path;
  return counts ? disk().done(file) : file;
}

ssize_t write(int file, const void* bytes, std::size_t size) {
  const auto found = disk().open_files.find(file);
  if (!disk().watching || found == disk().open_files.end())
    return ::syscall(SYS_write, file, bytes, size);
  if (!disk().allowed()) return -1;
  disk().unsynced.insert(found->second);
  return disk().done(static_cast<ssize_t>(::syscall(SYS_write, file, bytes, size)));
}

// Nothing has to reach a disk here; what matters is that it was asked for.
int fsync(int file) {
  const auto found = disk().open_files.find(file);
  if (!disk().watching || found == disk().open_files.end()) return 0;
  if (!disk().allowed()) return -1;
  disk().unsynced.erase(found->second);
  return disk().done(0);
}

int close(int file) {
  disk().open_files.erase(file);
  return call(SYS_close, file);
}

int rename(const char* from, const char* to) noexcept {
  if (!disk().concerns(from)) return rename_as_asked(from, to);
  if (!disk().allowed()) return -1;
  const int result = rename_as_asked(from, to);
  if (result == 0) note_rename(from, to, false);
  return disk().done(result);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  if (!disk().concerns(from)) return call(SYS_renameat2, from_folder, from, to_folder, to, flags);
  if (!disk().allowed()) return -1;
  if (!disk().can_exchange) {
    errno = EINVAL;
    return -1;
  }
  const int result = call(SYS_renameat2, from_folder, from, to_folder, to, flags);
  if (result == 0) note_rename(from, to, true);
  return disk().done(result);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (!disk().concerns(path)) return call(SYS_mkdirat, AT_FDCWD, path, mode);
  return disk().allowed() ? disk().done(call(SYS_mkdirat, AT_FDCWD, path, mode)) : -1;
}

int unlink(const char* path) noexcept {
  if (!disk().concerns(path)) return call(SYS_unlinkat, AT_FDCWD, path, 0);
  if (!disk().allowed()) return -1;
  disk().unsynced.erase(path);
  return disk().done(call(SYS_unlinkat, AT_FDCWD, path, 0));
}

// The function that std::filesystem::remove_all calls.
int unlinkat(int folder, const char* path, int flags) noexcept {
  if (!disk().watching) return call(SYS_unlinkat, folder, path, flags);
  return disk().allowed() ? disk().done(call(SYS_unlinkat, folder, path, flags)) : -1;
}
}

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using question_answering::QuestionAnsweringTask;

// A model of one layer with its optimizer, whose numbers identify their state.
class CheckpointFaults : public ::testing::Test {
 protected:
  CheckpointFaults()
      : tokenizer_(text::Tokenizer::load(demo() / "model")), task_(config(), tokenizer_, {}) {
    optimizer_ = optim::make_optimizer({}, task_.layout());
    weights_.resize(task_.layout().size());
    state_.resize(optimizer_->state_elements());
  }

  static fs::path demo() { return fs::path(TANDEM_SOURCE_DIR) / "examples" / "demo"; }
  static models::ModelConfig config() {
    models::ModelConfig config = models::ModelConfig::load(demo() / "model");
    // As few numbers as there can be: each state is written some three thousand times.
    config.num_hidden_layers = 1;
    config.hidden_size = config.intermediate_size = 16;
    config.num_attention_heads = 1;
    return config;
  }

  TrainedArenas arenas() {
    return {.weights = weights_,
            .optimizer_state = state_,
            .state_tensors = optimizer_->state_tensors()};
  }

  // Saves a state in which every number is `value`.
  void save(std::int64_t step, float value) {
    std::fill(weights_.begin(), weights_.end(), value);
    std::fill(state_.begin(), state_.end(), value);
    TrainerState state;
    state.global_step = step;
    ResumeState resume;
    resume.shard_loss_since_log = {static_cast<double>(value)};
    save_checkpoint(folder_.path(), {.task = task_,
                                     .arenas = arenas(),
                                     .state = state,
                                     .resume = resume,
                                     .training_arguments_json = "{}",
                                     .optimization = OptimizationState{.step = step}});
  }

  // The value of the newest complete checkpoint, from which the next run would resume.
  std::optional<float> newest() {
    restore_replaced_checkpoints(folder_.path());
    const auto last = last_checkpoint(folder_.path());
    if (!last) return std::nullopt;
    const LoadedCheckpoint loaded = load_checkpoint_state(*last);
    EXPECT_EQ(loaded.state.global_step, checkpoint_step(*last));
    std::fill(weights_.begin(), weights_.end(), -1.0f);
    load_checkpoint_arenas(*last, task_.layout(), arenas());
    const auto value = static_cast<float>(loaded.resume.shard_loss_since_log.at(0));
    for (const nn::ParameterSpec& parameter : task_.layout().parameters())
      EXPECT_EQ(weights_[parameter.offset], value) << parameter.name << " of " << *last;
    for (const optim::StateTensor& tensor : optimizer_->state_tensors())
      EXPECT_EQ(state_[tensor.offset], value) << tensor.name << " of " << *last;
    return value;
  }

  // Runs `change` with the fault at call `at`; returns whether that call was reached.
  template <class Change>
  bool with_fault(Fault fault, int at, Change change) {
    disk() = {.watching = true,
              .folder = folder_.path().native(),
              .fault = fault,
              .at = at,
              .error = at % 2 == 0 ? EIO : ENOSPC,
              .can_exchange = can_exchange_};
    if (fault == Fault::kError) {
      try {
        change();
      } catch (const IoError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(folder_.path().native()));
      }
      const bool reached = disk().calls >= at;
      disk().forget();
      return reached;
    }
    const pid_t child = ::fork();
    if (child == 0) {
      change();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    disk().forget();
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_THAT(WEXITSTATUS(status), ::testing::AnyOf(0, kCrashed));
    return WEXITSTATUS(status) == kCrashed;
  }

  // prepare(), then change() with a fault at its first call, its second, and so on; after each the
  // newest checkpoint is one of `accepted`, and the same change without a fault gives the last of
  // them.
  template <class Prepare, class Change>
  void expect_old_or_new(Fault fault, Prepare prepare, Change change,
                         const std::vector<float>& accepted) {
    int faults = 0;
    for (int at = 1;; ++at) {
      SCOPED_TRACE(::testing::Message()
                   << "fault " << static_cast<int>(fault) << " at call " << at);
      fs::remove_all(folder_.path());
      fs::create_directories(folder_.path());
      prepare();
      if (!with_fault(fault, at, change)) break;
      ++faults;
      const auto found = newest();
      ASSERT_TRUE(found.has_value()) << "no checkpoint is left";
      EXPECT_THAT(accepted, ::testing::Contains(*found));
      remove_unfinished_checkpoints(folder_.path());
      change();
      EXPECT_EQ(newest(), accepted.back());
      if (HasFailure()) return;
    }
    EXPECT_GT(faults, 5);
    RecordProperty("calls", faults);
  }

  testing::TemporaryFolder folder_;
  bool can_exchange_ = true;

 private:
  text::Tokenizer tokenizer_;
  QuestionAnsweringTask task_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<float> weights_, state_;
};

constexpr Fault kFaults[] = {Fault::kError, Fault::kCrash, Fault::kPowerCut};

TEST_F(CheckpointFaults, ANewCheckpointNextToAnOlderOne) {
  for (const Fault fault : kFaults) {
    expect_old_or_new(
        fault, [&] { save(7, 1); }, [&] { save(9, 2); }, {1, 2});
  }
}

TEST_F(CheckpointFaults, ACheckpointInPlaceOfOneOfTheSameStep) {
  for (const bool can_exchange : {true, false}) {
    can_exchange_ = can_exchange;
    for (const Fault fault : kFaults) {
      expect_old_or_new(
          fault, [&] { save(9, 1); }, [&] { save(9, 2); }, {1, 2});
    }
  }
}

TEST_F(CheckpointFaults, RotationLeavesTheNewest) {
  const auto prepare = [&] {
    save(7, 1);
    save(8, 2);
    save(9, 3);
  };
  for (const Fault fault : kFaults) {
    expect_old_or_new(fault, prepare, [&] { rotate_checkpoints(folder_.path(), 1, std::nullopt); },
                      {3});
  }
}

// The harness notices a writer that does not sync, and one that does not write aside.
TEST_F(CheckpointFaults, TheDiskForgetsWhatWasNotSynced) {
  const std::string path = (folder_.path() / "file").native();
  const auto careless = [&] {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0666);
    EXPECT_EQ(::write(file, "text", 4), 4);
    ::close(file);
    ::rename(path.c_str(), (path + "2").c_str());
  };
  EXPECT_TRUE(with_fault(Fault::kPowerCut, 3, careless));
  EXPECT_EQ(fs::file_size(path + "2"), 0u);
  EXPECT_TRUE(with_fault(Fault::kCrash, 2, careless));
  EXPECT_EQ(fs::file_size(path), 4u);
}

}  // namespace
}  // namespace tandem::trainer
