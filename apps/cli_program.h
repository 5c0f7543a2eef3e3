// The built program for tests that look at it from outside: what it prints, and the exit code.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/process.h"
#include "tandem/core/json.h"

namespace tandem {

inline std::string program() {
  return (std::filesystem::path(TANDEM_BINARY_DIR) / "bin" / "tandem").string();
}
inline std::string demo_model() {
  return (std::filesystem::path(TANDEM_SOURCE_DIR) / "examples" / "demo" / "model").string();
}
inline std::string demo_questions() {
  return (std::filesystem::path(TANDEM_SOURCE_DIR) / "examples" / "demo" / "held_out.json")
      .string();
}

inline testing::ProcessResult tandem(std::vector<std::string> words,
                                     std::map<std::string, std::string> environment = {}) {
  words.insert(words.begin(), program());
  environment.try_emplace("OMP_NUM_THREADS", "1");
  return testing::run(words, environment);
}

// The program with its standard input from a file, through a shell.
inline testing::ProcessResult tandem_shell(const std::string& arguments) {
  return testing::run({"/bin/sh", "-c", fmt::format("'{}' {}", program(), arguments)},
                      {{"OMP_NUM_THREADS", "1"}});
}

inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline void expect_failure(const testing::ProcessResult& result, int exit_code,
                           const std::string& message) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_THAT(result.err, ::testing::AllOf(::testing::HasSubstr("tandem: error: "),
                                           ::testing::HasSubstr(message)));
  EXPECT_THAT(result.out, ::testing::IsEmpty());
}

}  // namespace tandem
