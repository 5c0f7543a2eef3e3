#include "tandem/core/file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/lock_file.h"
#include "tandem/core/mappings.h"
#include "tandem/core/memory_usage.h"
#include "tandem/core/pages.h"
#include "tandem/core/volume.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().native());
  std::sort(names.begin(), names.end());
  return names;
}

// A part that was read leaves memory, and comes back with its bytes.
TEST(MappedFile, GivesUpThePagesThatAreReleased) {
  const tandem::testing::TemporaryFolder folder;
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  const std::filesystem::path path = folder / "large";
  write_file(path, std::string(kBytes, 'a'));
  const MappedFile mapped(path);
  const auto letters = [&] {
    return std::ranges::count(mapped.bytes(), static_cast<std::byte>('a'));
  };
  const std::size_t before = resident_bytes();
  EXPECT_EQ(letters(), kBytes);
  const std::size_t read = resident_bytes();
  EXPECT_GT(read, before + kBytes / 2);
  release_pages(mapped.bytes().subspan(5, kBytes - 100));
  EXPECT_LT(resident_bytes(), read - kBytes / 2);
  EXPECT_EQ(letters(), kBytes);

  const std::vector<std::byte> other(4 * kPage, std::byte{1});
  release_pages(other);
  EXPECT_THAT(other, ::testing::Each(std::byte{1}));
}

TEST(MappedFile, OfThisUserOnlyWhereThatIsAskedFor) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "a";
  write_file(path, "text");
  EXPECT_EQ(MappedFile(path, Writers::kThisUser).bytes().size(), 4u);
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THROW(MappedFile(path, Writers::kThisUser), IoError);
  EXPECT_EQ(MappedFile(path).bytes().size(), 4u);
  fs::permissions(path, fs::perms::others_write, fs::perm_options::remove);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_THROW(MappedFile(path, Writers::kThisUser), IoError);
  EXPECT_EQ(MappedFile(path).bytes().size(), 4u);
}

TEST(AtomicFile, TheTemporaryNameIsUnpredictable) {
  const testing::TemporaryFolder folder;
  std::string first;
  {
    const AtomicFile file(folder / "a");
    ASSERT_EQ(names_in(folder.path()).size(), 1u);
    first = names_in(folder.path()).front();
    EXPECT_THAT(first, MatchesRegex("a\\.tmp-[0-9a-f]{16}"));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
  const AtomicFile again(folder / "a");
  EXPECT_NE(names_in(folder.path()).front(), first);
}

TEST(AtomicFile, NamesAFolderThatDoesNotExist) {
  const testing::TemporaryFolder temporary;
  const fs::path folder = temporary / "absent";
  try {
    const AtomicFile file(folder / "a");
    FAIL() << "a file in " << folder;
  } catch (const IoError& error) {
    EXPECT_EQ(std::string(error.what()),
              fmt::format("cannot create '{0}/a': the folder '{0}' does not exist; create it first",
                          folder.native()));
  }
}

TEST(AtomicFile, ReplacesALinkAndNotWhatItPointsTo) {
  const testing::TemporaryFolder folder;
  write_file(folder / "precious", "keep");
  fs::create_symlink(folder / "precious", folder / "a");
  write_file(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "precious"), "keep");
  EXPECT_EQ(read_file(folder / "a"), "new");
}

TEST(AbandonedFiles, AreRemovedAndNothingElse) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"model.safetensors", "model.safetensors.tmp-0123456789abcdef",
                           "a.tmp-12", ".tmp-0123456789abcdef", "a.tmp-0123456789ABCDEF"})
    write_file(folder / name, "x");
  fs::create_directory(folder / "folder.tmp-0123456789abcdef");
  remove_abandoned_files(folder.path());
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre(".tmp-0123456789abcdef", "a.tmp-0123456789ABCDEF", "a.tmp-12",
                          "folder.tmp-0123456789abcdef", "model.safetensors"));
  remove_abandoned_files(folder / "nowhere");
}

TEST(LockFile, HasOneHolderAndNamesIt) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "lock";
  auto lock = LockFile::try_acquire(path);
  ASSERT_TRUE(lock.has_value());
  EXPECT_THAT(LockFile::text_of(path), HasSubstr(std::to_string(::getpid())));
  EXPECT_FALSE(LockFile::try_acquire(path).has_value());
  LockFile moved = std::move(*lock);
  lock.reset();
  EXPECT_FALSE(LockFile::try_acquire(path).has_value());
  moved.remove_at_end();
  { const LockFile ended = std::move(moved); }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(LockFile::try_acquire(path).has_value());
}

TEST(LockFile, EndsWithItsProcess) {
  const testing::TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = LockFile::try_acquire(folder / "lock");
    ::_exit(lock ? 0 : 1);  // without a destructor
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(LockFile::try_acquire(folder / "lock").has_value());
}

TEST(AtomicFile, ThatIsNewLeavesWhatOthersHaveMade) {
  const testing::TemporaryFolder folder;
  for (const char* text : {"first", "second"}) {
    AtomicFile file(folder / "a");
    file.write(text);
    file.publish_if_new();
  }
  EXPECT_EQ(read_file(folder / "a"), "first");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
}

TEST(Directories, ThatAreNotThereAreEmpty) {
  const testing::TemporaryFolder folder;
  write_file(folder / "a", "");
  EXPECT_THAT(list_directory(folder.path()), ElementsAre(folder / "a"));
  EXPECT_THAT(list_directory(folder / "none"), ElementsAre());
  EXPECT_THAT(list_directory(folder / "a"), ElementsAre());
}

TEST(Volume, IsLookedForAtEachCheckpoint) {
  const testing::TemporaryFolder disk;
  const fs::path other = "/dev/shm";  // a link that turns to it is a volume that was unmounted
  struct stat here {};
  struct stat there {};
  if (::stat(disk.path().c_str(), &here) != 0 || ::stat(other.c_str(), &there) != 0 ||
      here.st_dev == there.st_dev) {
    GTEST_SKIP() << "needs two file systems: " << disk.path() << " and /dev/shm";
  }
  fs::create_directory(disk / "volume");
  fs::create_directory_symlink("volume", disk / "mount");
  const VolumeMark mark(disk / "mount" / "out");
  mark.require_same();
  fs::create_directory(disk / "volume" / "out");
  mark.require_same();
  fs::remove_all(disk / "volume" / "out");  // by a person: it is made again
  mark.require_same();
  fs::remove(disk / "mount");
  fs::create_directory_symlink(other, disk / "mount");
  EXPECT_THROW(mark.require_same(), VolumeGone);
}

TEST(LockFile, FollowsNoLink) {
  const testing::TemporaryFolder folder;
  write_file(folder / "precious", "keep");
  fs::create_symlink(folder / "precious", folder / "lock");
  EXPECT_THROW(LockFile::try_acquire(folder / "lock"), IoError);
  EXPECT_EQ(read_file(folder / "precious"), "keep");
}

}  // namespace
}  // namespace tandem
