// Each numbered example runs with two ranks, and the last line of rank 0 is the one that its source
// promises.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "support/process.h"

namespace tandem {
namespace {

std::vector<std::string> examples() {
  std::istringstream names(TANDEM_COMM_EXAMPLES);
  return {std::istream_iterator<std::string>(names), {}};
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return last;
}

// The text after "// Last line…: " at the end of the source, in one or several lines of comment.
std::string promised(const std::string& example) {
  std::ifstream file(fmt::format("{}/examples/comm/{}.c", TANDEM_SOURCE_DIR, example));
  std::string found;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("// Last line")) {
      found = line.substr(std::min(line.find(": "), line.size() - 2) + 2);
    } else if (!found.empty() && line.starts_with("// ")) {
      found += line.substr(2);
    } else {
      found.clear();
    }
  }
  return found;
}

class CommExample : public ::testing::TestWithParam<std::string> {};

TEST_P(CommExample, PrintsWhatItPromises) {
  const std::string expected = promised(GetParam());
  ASSERT_FALSE(expected.empty()) << "the source does not end with its last line";
  const std::string program = fmt::format("{}/comm_{}", TANDEM_EXAMPLES_FOLDER, GetParam());
  const std::string port = std::to_string(testing::free_port());
  const auto environment = [&](int rank) -> std::map<std::string, std::string> {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", "2"},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", port}};
  };
  testing::Process first({program}, environment(0));
  testing::Process second({program}, environment(1));
  const testing::ProcessResult result = first.wait(std::chrono::seconds(60));
  const testing::ProcessResult other = second.wait(std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(last_line(result.out), expected);
}

INSTANTIATE_TEST_SUITE_P(All, CommExample, ::testing::ValuesIn(examples()),
                         [](const auto& example) { return example.param; });

}  // namespace
}  // namespace tandem
