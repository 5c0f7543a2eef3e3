// Tests of core: rounding, files, threads, environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "support/test_support.h"
#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"
#include "tandem/core/env.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/interruption.h"
#include "tandem/core/thread_pool.h"
#include "tandem/core/volume.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(to_bfloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x7f7fffffu)).bits, 0x7f80);  // overflows to infinity
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Bfloat16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bfloat16 value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(value))) continue;
    ASSERT_EQ(to_bfloat16(to_float(value)), value) << bits;
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0xc000), -2.0f);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(half_to_float(0x83ff), -1023 * 0x1p-24f);
  EXPECT_TRUE(std::isinf(half_to_float(0x7c00)));
  EXPECT_TRUE(std::isnan(half_to_float(0x7e00)));
}

TEST(Arena, MeasuresThenAllocatesTheSame) {
  const auto plan = [](Arena& arena) {
    arena.allocate<float>(3);
    return arena.allocate<double>(5);
  };
  Arena measure;
  plan(measure);
  Arena arena(measure.used());
  const auto doubles = plan(arena);
  EXPECT_EQ(arena.used(), measure.used());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(doubles.data()) % kTensorAlignment, 0u);
}

TEST(Buffer, LargeBuffersAreZeroedAndAligned) {
  const Buffer buffer(std::size_t{9} << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % (2u << 20), 0u);
  for (const std::byte b : buffer.as<std::byte>()) ASSERT_EQ(b, std::byte{0});
}

TEST(ThreadPool, RunsEveryChunkOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const std::size_t chunks : {0u, 1u, 2u, 1000u}) {
      std::vector<std::atomic<int>> count(chunks);
      pool.parallel_for(chunks, [&](std::size_t chunk, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        ++count[chunk];
      });
      for (const auto& c : count) EXPECT_EQ(c, 1);
    }
  }
}

TEST(ThreadPool, RethrowsTheFirstExceptionAndContinuesToWork) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.parallel_for(100,
                                 [](std::size_t chunk, int) {
                                   if (chunk == 40) raise<DataError>("chunk {}", chunk);
                                 }),
               DataError);
  std::atomic<int> sum{0};
  pool.parallel_for(10, [&](std::size_t chunk, int) { sum += static_cast<int>(chunk); });
  EXPECT_EQ(sum, 45);
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(2);
  std::vector<long> totals(2);
  for (int i = 0; i < 20000; ++i) {
    pool.parallel_for(2, [&](std::size_t chunk, int) { ++totals[chunk]; });
  }
  EXPECT_EQ(totals[0], 20000);
  EXPECT_EQ(totals[1], 20000);
}

TEST(ThreadPool, IsInterruptedInItsScope) {
  ThreadPool pool(2);
  std::atomic<bool> interrupted{false};
  const auto loop = [&] { pool.parallel_for(10, [](std::size_t, int) {}); };
  {
    const InterruptionScope scope(interrupted);
    loop();
    interrupted = true;
    EXPECT_THROW(loop(), Interrupted);
    std::thread(loop).join();  // another thread has no scope
  }
  loop();
}

// A task may take any time: it checks the interruption itself, on its own thread.
TEST(ThreadPool, TasksAreInTheScopeOfTheirLoop) {
  ThreadPool pool(2);
  std::atomic<bool> interrupted{false};
  const InterruptionScope scope(interrupted);
  std::atomic<int> ended{0};
  const auto until_interrupted = [&](std::size_t chunk, int) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    interrupted = interrupted || chunk == 1;
    for (InterruptionCheck check; std::chrono::steady_clock::now() < limit;) {
      try {
        check.count();
      } catch (const Interrupted&) {
        ++ended;
        throw;
      }
    }
  };
  EXPECT_THROW(pool.parallel_for(2, until_interrupted), Interrupted);
  EXPECT_GE(ended, 1);
  interrupted = false;
  pool.parallel_for(2, [](std::size_t, int) { throw_if_interrupted(); });
}

TEST(CancellationScope, IsAnInterruptionScope) {
  std::stop_source stop;
  {
    const CancellationScope scope(stop.get_token());
    throw_if_interrupted();
    stop.request_stop();
    EXPECT_THROW(throw_if_interrupted(), Interrupted);
  }
  throw_if_interrupted();
  const CancellationScope late(stop.get_token());
  EXPECT_THROW(throw_if_interrupted(), Interrupted);
}

TEST(ThreadPool, NeedsAThread) { EXPECT_THROW(ThreadPool(0), InvalidArgument); }

TEST(AvailableCores, AtLeastOne) { EXPECT_GE(available_cores(), 1); }

TEST(File, WritesAtomicallyAndReads) {
  const testing::TemporaryFolder folder;
  write_file(folder / "a", "old");
  {
    AtomicFile abandoned(folder / "a");
    abandoned.write("half of the new");
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  write_file(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  const MappedFile mapped(folder / "a");
  EXPECT_EQ(mapped.bytes().size(), 3u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_FALSE(read_file_if_exists(folder / "absent").has_value());
  try {
    read_file(folder / "absent");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("absent': No such file"));
  }
  EXPECT_THROW(read_file(folder.path()), IoError);
}

TEST(File, AWriteThatFailsLeavesTheOldFileAndNoTemporary) {
  const testing::TemporaryFolder folder;
  write_file(folder / "a", "old");
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  EXPECT_THROW(write_file(folder / "a", std::string(10000, 'x')), IoError);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Environment, ParsesAndNamesWhatIsWrong) {
  const Environment env(
      {{"RANK", "3"}, {"WORLD_SIZE", "four"}, {"HF_HUB_OFFLINE", "yes"}, {"HOME", ""}});
  EXPECT_EQ(env.get_int("RANK", 0, 10), 3);
  EXPECT_FALSE(env.get("HOME").has_value());
  EXPECT_TRUE(env.get_flag("HF_HUB_OFFLINE"));
  EXPECT_FALSE(env.get_flag("TRANSFORMERS_OFFLINE"));
  try {
    env.get_int("WORLD_SIZE", 1, 10);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("WORLD_SIZE is 'four', expected an integer from 1 to 10"));
  }
}

TEST(Environment, RegistryIsSortedAndDocumented) {
  const auto rows = Environment::registry();
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  const std::string page = read_file(TANDEM_SOURCE_DIR "/docs/environment_variables.md");
  std::size_t documented = 0;
  for (std::size_t at = page.find("\n| `"); at != std::string::npos;
       at = page.find("\n| `", at + 1)) {
    const std::string name = page.substr(at + 4, page.find('`', at + 4) - at - 4);
    ++documented;
    EXPECT_TRUE(
        std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; }))
        << name << " is documented but not in core/env.cc";
  }
  EXPECT_EQ(documented, rows.size()) << "docs/environment_variables.md and core/env.cc differ";
  for (const auto& row : rows) {
    EXPECT_THAT(page, HasSubstr(fmt::format("| `{}` |", row.name)));
  }
}

// The table of other libraries' variables has "yes" for exactly those that are in the registry.
TEST(Environment, TheTableOfOtherLibrariesListsWhatIsRead) {
  const auto rows = Environment::registry();
  std::istringstream page(read_file(TANDEM_SOURCE_DIR "/docs/environment_variables.md"));
  int checked = 0;
  for (std::string line; std::getline(page, line);) {
    const std::size_t yes = line.find(" | yes | "), no = line.find(" | no | ");
    if (line.rfind("| ", 0) != 0 || (yes == std::string::npos && no == std::string::npos)) continue;
    std::istringstream names(line.substr(2, std::min(yes, no) - 2));
    for (std::string name; names >> name;) {
      if (name.back() == ',') name.pop_back();
      const bool registered =
          std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
      EXPECT_EQ(registered, yes < no) << name;
      ++checked;
    }
  }
  EXPECT_GT(checked, 15);
}

TEST(Volume, ThatIsGoneIsAnotherErrorThanOneThatIsFull) {
  const IoError full = io_error("cannot write", "/v/a", ENOSPC);
  EXPECT_EQ(full.exit_code(), 1);
  EXPECT_THAT(full.what(),
              ::testing::HasSubstr("'/v/a': No space left on device; make room there"));
  EXPECT_THAT(io_error("cannot create", "/v/a", EROFS).what(),
              ::testing::HasSubstr("mount the volume for writing"));
  for (const int gone : {ESTALE, ENOTCONN, ECONNABORTED, EIO}) {
    try {
      throw io_error("cannot sync", "/v/a", gone);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), kVolumeGone);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("the volume or its server does not answer"));
    }
  }
}

}  // namespace
}  // namespace tandem
