#include "apps/lost_mappings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/volume.h"

namespace tandem::apps {
namespace {

constexpr std::size_t kSize = 1 << 16;

void print_and_end(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  ::_exit(kVolumeGone);
}

// Reads behind what is left of a file, as of one whose volume has gone.
void read_what_is_gone(const std::filesystem::path& path) {
  write_file(path, std::string(kSize, 'x'));
  const MappedFile file(path);
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  volatile std::byte last = file.bytes().back();
  (void)last;
}

TEST(LostMappings, NameTheFileAndEndTheProcess) {
  const testing::TemporaryFolder folder;
  EXPECT_EXIT(
      {
        const LostMappings lost(print_and_end);
        read_what_is_gone(folder / "a.features");
      },
      ::testing::ExitedWithCode(kVolumeGone),
      ::testing::AllOf(::testing::HasSubstr("a.features', which is mapped"),
                       ::testing::HasSubstr("the newest checkpoint")));
}

TEST(LostMappings, LeaveOtherErrorsOfTheBusAsTheyAre) {
  const testing::TemporaryFolder folder;
  EXPECT_EXIT(
      {
        const LostMappings lost(print_and_end);
        const int file = ::memfd_create("short", 0);
        const void* const bytes = ::mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE, file, 0);
        volatile char first = *static_cast<const char*>(bytes);
        (void)first;
      },
      ::testing::KilledBySignal(SIGBUS), "");
  // The signal is caught only by a sanitizer, which reports it and exits.
  const auto ends = [](int status) {
    return testing::kSanitized ? WIFEXITED(status) && WEXITSTATUS(status) != kVolumeGone
                               : ::testing::KilledBySignal(SIGBUS)(status);
  };
  EXPECT_EXIT(read_what_is_gone(folder / "b"), ends, "");
}

TEST(LostMappings, MayEndWithoutALoss) {
  const testing::TemporaryFolder folder;
  write_file(folder / "a", "text");
  for (int i = 0; i < 3; ++i) {
    const LostMappings lost(print_and_end);
    const MappedFile file(folder / "a");
    EXPECT_EQ(file.bytes().size(), 4U);
  }
}

}  // namespace
}  // namespace tandem::apps
