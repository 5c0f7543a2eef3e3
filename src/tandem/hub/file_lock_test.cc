#include "tandem/hub/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::hub {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

class FileLockTest : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return folder_ / "a/b/c.lock"; }
  testing::TemporaryFolder folder_;
};

TEST_F(FileLockTest, OneHoldsTheOthersWait) {
  std::atomic<int> inside{0};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const FileLock lock(path(), {});
      EXPECT_EQ(++inside, 1);
      std::this_thread::sleep_for(milliseconds(20));
      --inside;
      ++done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 4);
}

TEST_F(FileLockTest, AStandingHolderIsNamed) {
  FileLock held(path(), {});
  std::string reported;
  LockOptions options;
  options.timeout = milliseconds(100);
  options.waiting = [&](const std::string& holder) { reported = holder; };
  EXPECT_THAT([&] { FileLock lock(path(), options); },
              ThrowsMessage<IoError>(AllOf(HasSubstr(path().string()),
                                           HasSubstr(fmt::format("process {}", ::getpid())),
                                           HasSubstr("without progress"))));
  // The text is for people: without progress that did not happen, without heartbeat details.
  EXPECT_THAT(reported, ::testing::MatchesRegex(fmt::format("process {} on [^ ]+", ::getpid())));
}

// The wait for a holder that shows progress exceeds the timeout.
TEST_F(FileLockTest, ASignOfLifeProlongsTheWait) {
  auto held = std::make_unique<FileLock>(path(), LockOptions{});
  std::thread release([&] {
    std::this_thread::sleep_for(milliseconds(600));
    held.reset();
  });
  int signs = 0;
  LockOptions options;
  options.timeout = milliseconds(250);
  options.sign_of_life = [&] { return std::to_string(++signs); };
  const FileLock lock(path(), options);
  release.join();
  EXPECT_GT(signs, 1);
}

TEST_F(FileLockTest, HeartbeatsAreWritten) {
  FileLock lock(path(), {});
  lock.heartbeat("too soon");
  const std::string before = read_file(path());
  EXPECT_THAT(before, Not(HasSubstr("too soon")));
  std::this_thread::sleep_for(milliseconds(1050));
  lock.heartbeat("model.safetensors");
  EXPECT_THAT(read_file(path()), HasSubstr("(model.safetensors)\n"));
  std::this_thread::sleep_for(milliseconds(1050));
  lock.heartbeat("");
  EXPECT_NE(read_file(path()), before);  // the same words, another sign of life
}

TEST_F(FileLockTest, AFolderThatCannotBeMadeIsAnError) {
  write_file(folder_ / "a", "a file");
  EXPECT_THROW(FileLock(path(), {}), IoError);
}

}  // namespace
}  // namespace tandem::hub
