#include "apps/command/text_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "support/test_support.h"
#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;
using ::testing::ThrowsMessage;

class TextOutputs : public ::testing::Test {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
  void TearDown() override { std::signal(SIGPIPE, SIG_DFL); }
  std::string path(const char* name) const { return (folder_.path() / name).native(); }
  std::string content(const std::string& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TextOutputs, AFileAppearsWhenItIsWhole) {
  write_file(path("rows"), "old\n");
  {
    TextOutput output(path("rows"));
    output.write("a\n");
  }
  EXPECT_EQ(content(path("rows")), "old\n");
  TextOutput output(path("rows"));
  output.write("a\nb\n");
  output.write("c\n");
  EXPECT_EQ(content(path("rows")), "old\n");
  output.commit();
  EXPECT_EQ(content(path("rows")), "a\nb\nc\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

// A link that another user of the folder has made under a name that is easy to guess.
TEST_F(TextOutputs, NoLinkIsFollowed) {
  write_file(path("other"), "kept\n");
  fs::create_symlink(path("other"), path("rows.partial"));
  TextOutput output(path("rows"));
  output.write("a\n");
  output.commit();
  EXPECT_EQ(content(path("other")), "kept\n");
  EXPECT_EQ(content(path("rows")), "a\n");
}

TEST_F(TextOutputs, APipeGetsLinesAtOnce) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  TextOutput output(path("pipe"));
  output.write("a\n");
  char found[8] = {};
  EXPECT_EQ(::read(reader, found, sizeof found), 2);
  EXPECT_STREQ(found, "a\n");
  ::close(reader);
  EXPECT_THROW(output.write("b\n"), OutputClosed);
}

// --output /dev/stdout > FILE: a name of the open file, in whose folder nothing can be made.
TEST_F(TextOutputs, AnOpenFileIsWrittenTo) {
  const int file = ::open(path("rows").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  {
    TextOutput output("/proc/self/fd/" + std::to_string(file));
    output.write("a\n");
    output.commit();
  }
  ::close(file);
  EXPECT_EQ(content(path("rows")), "a\n");
}

TEST_F(TextOutputs, AFailureNamesThePath) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const auto fill = [] { TextOutput("/dev/full").write("a\n"); };
  EXPECT_THAT(fill, ::testing::ThrowsMessage<IoError>(::testing::HasSubstr("/dev/full")));
  const auto open = [&] { TextOutput(path("absent/rows")).write("a\n"); };
  EXPECT_THAT(open, ::testing::ThrowsMessage<IoError>(::testing::HasSubstr(path("absent"))));
}

TEST(WrittenFormat, OtherFormatsAreRefused) {
  constexpr std::array<std::string_view, 2> kWritten = {".npy", ".jsonl"};
  for (const char* output : {"-", "a", "a.npy", "b/a.jsonl", "a.json", "a.2026", "/dev/stdout"})
    EXPECT_NO_THROW(require_written_format(output, kWritten)) << output;
  EXPECT_THAT(
      [&] { require_written_format("a.csv", kWritten); },
      ThrowsMessage<ConfigError>("--output a.csv: expected a name that ends with .npy, .jsonl"));
  EXPECT_THROW(require_written_format("a.parquet", kWritten), ConfigError);
  EXPECT_THROW(require_written_format("a.jsonl.gz", kWritten), ConfigError);
}

}  // namespace
}  // namespace tandem::apps
