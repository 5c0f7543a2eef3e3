#include "tandem/core/descriptors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>

#include "tandem/core/error.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// In a process of its own: a hard limit cannot be raised again.
void with_limits(rlim_t soft, rlim_t hard, const std::function<int()>& body) {
  EXPECT_EXIT(
      {
        rlimit limit;
        limit.rlim_cur = soft;
        limit.rlim_max = hard;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        ::_exit(body());
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Descriptors, TheSoftLimitIsRaisedWhereItIsTooLow) {
  with_limits(64, 256, [] {
    reserve_descriptors(150, "rank 0 of 4");
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    for (int i = 0; i < 150; ++i) {
      if (::open("/dev/null", O_RDONLY) < 0) return 2;
    }
    return now.rlim_cur == 256 ? 0 : 1;
  });
}

TEST(Descriptors, NothingChangesWhereThereIsRoom) {
  with_limits(128, 256, [] {
    reserve_descriptors(10, "rank 0 of 4");
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur == 128 ? 0 : 1;
  });
}

TEST(Descriptors, TooLowAHardLimitIsNamedWithWhatIsNeeded) {
  with_limits(16, 16, [] {
    try {
      reserve_descriptors(40, "rank 3 of 4");
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
      return has("rank 3 of 4 needs") && has("40 for connections") && has("hard limit 16") &&
                     has("ulimit -Hn")
                 ? 0
                 : 1;
    }
    return 2;
  });
}

TEST(Descriptors, RunningOutNamesTheLimit) {
  EXPECT_TRUE(out_of_descriptors(EMFILE) && out_of_descriptors(ENFILE));
  EXPECT_FALSE(out_of_descriptors(ECONNREFUSED));
  const auto text_of = [](int error_number) {
    try {
      raise_out_of_descriptors("a connection cannot be accepted", error_number);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(text_of(EMFILE), AllOf(HasSubstr("a connection cannot be accepted: this process"),
                                     HasSubstr("ulimit -n")));
  EXPECT_THAT(text_of(ENFILE), AllOf(HasSubstr("system-wide"), HasSubstr("fs.file-max")));
}

}  // namespace
}  // namespace tandem
