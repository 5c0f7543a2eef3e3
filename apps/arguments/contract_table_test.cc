// The flag table against the contract's own text, where that lies next to the source folder: every
// flag that its sections 1, 2 and 9 name has a row here, and where a row of section 9 has one
// verdict, it is that one. (run_qa_arguments_test.cc holds the verdicts without the text.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "apps/arguments/arguments_test_support.h"
#include "tandem/core/file.h"

namespace tandem::apps {
namespace {

const std::filesystem::path kContract =
    std::filesystem::path(TANDEM_SOURCE_DIR) / ".." / "shared" / "reference" / "run_qa.md";

class ContractTable : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto text = read_file_if_exists(kContract);
    if (!text) GTEST_SKIP() << "the contract's text, " << kContract.native() << ", is not there";
    std::istringstream lines(*text);
    std::string section;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("## ")) section = line.substr(3, line.find('.') - 3);
      sections_[section].push_back(line);
    }
    for (const Flag& flag : run_qa_flags()) {
      verdicts_.emplace(flag.name, flag.verdict);
      for (const Alias& alias : flag.aliases) verdicts_.emplace(alias.name, flag.verdict);
    }
  }

  const std::vector<std::string>& section(const std::string& number) { return sections_[number]; }

  // Our verdict on a flag; fails the test if its row is missing.
  std::optional<Verdict> verdict_of(const std::string& name) {
    const auto found = verdicts_.find(name);
    if (found == verdicts_.end()) {
      ADD_FAILURE() << "--" << name << " is in the contract and has no row";
      return std::nullopt;
    }
    return found->second;
  }

 private:
  std::map<std::string, std::vector<std::string>> sections_;
  std::map<std::string, Verdict, std::less<>> verdicts_;
};

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream stream(row.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) cells.push_back(cell);
  return cells;
}

// The texts between backquotes.
std::vector<std::string> quoted_parts(const std::string& text) {
  std::vector<std::string> parts;
  bool quoted = false;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, '`'); quoted = !quoted) {
    if (quoted) parts.push_back(part);
  }
  return parts;
}

// Words that could be flags: letters, digits and _.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

// "torch_compile(_backend,_mode), x (F)" -> torch_compile torch_compile_backend torch_compile_mode
// x
std::vector<std::string> flags_of(const std::string& cell) {
  std::vector<std::string> flags;
  std::string outside, inside;
  int depth = 0;
  const auto add_suffixes = [&] {
    if (!inside.starts_with("_") || flags.empty()) return;
    const std::string base = flags.back();
    for (const std::string& suffix : words_of(inside)) flags.push_back(base + suffix);
  };
  const auto add_words = [&] {
    for (const std::string& word : words_of(std::exchange(outside, {}))) flags.push_back(word);
  };
  for (const char c : cell) {
    if (c == '(' && depth++ == 0) {
      add_words();
      inside.clear();
    } else if (c == ')' && --depth == 0) {
      add_suffixes();
    } else {
      (depth > 0 ? inside : outside) += c;
    }
  }
  add_words();
  return flags;
}

TEST_F(ContractTable, FlagsOfAllVersionsHaveRows) {
  int found = 0;
  for (const std::string& line : section("1")) {
    if (!line.starts_with("| `--")) continue;
    for (const std::string& part : quoted_parts(cells_of(line)[0])) {
      if (!part.starts_with("--")) continue;
      verdict_of(part.substr(2));
      ++found;
    }
  }
  EXPECT_GE(found, 15);
}

TEST_F(ContractTable, ArgumentsOfTheScriptHaveRows) {
  std::string text;
  for (const std::string& line : section("2")) text += line + "\n";
  const std::size_t begin = text.find("Script args"), end = text.find("All MUST except");
  ASSERT_LT(begin, end);
  const std::vector<std::string> names = quoted_parts(text.substr(begin, end - begin));
  for (const std::string& name : names) verdict_of(name);
  EXPECT_GE(names.size(), 22u);
}

TEST_F(ContractTable, RowsOfSectionNineHaveTheirVerdicts) {
  // Verdicts of rows with one letter for all their flags.
  const std::map<std::string, std::set<Verdict>> letters = {
      {"M", {Verdict::kWorks}},
      // A flag that should work may have no effect if the reason explains it.
      {"S", {Verdict::kWorks, Verdict::kNote}},
      {"N", {Verdict::kNote}},
      {"R", {Verdict::kRefused}}};
  int rows = 0;
  std::set<std::string> seen;
  for (const std::string& line : section("9")) {
    const std::vector<std::string> cells =
        line.starts_with("| ") ? cells_of(line) : std::vector<std::string>();
    if (cells.size() < 3 || words_of(cells[0]).empty() || line.starts_with("| # ")) continue;
    ++rows;
    SCOPED_TRACE(line);
    const std::vector<std::string> verdict_words = words_of(cells[2]);
    const bool prose = cells[2].find(';') != std::string::npos ||
                       cells[2].find(',') != std::string::npos || verdict_words.empty();
    const auto letter = prose ? letters.end() : letters.find(verdict_words.front());
    std::set<Verdict> expected = letter == letters.end() ? std::set<Verdict>() : letter->second;
    // "R if set (or S)": either.
    if (cells[2].find("(or S)") != std::string::npos && !expected.empty())
      expected.insert({Verdict::kWorks, Verdict::kNote});
    for (const std::string& flag : flags_of(cells[1])) {
      // "…_kwargs" belongs to the name before it.
      // "use_liger_kernel(_config)" is liger_kernel_config.
      if (flag == "_kwargs" || flag == "use_liger_kernel_config") continue;
      const auto verdict = verdict_of(flag);
      seen.insert(flag);
      if (verdict && !expected.empty()) {
        EXPECT_TRUE(expected.contains(*verdict)) << "--" << flag;
      }
    }
  }
  EXPECT_GE(rows, 36);
  EXPECT_GE(seen.size(), 100u);
}

}  // namespace
}  // namespace tandem::apps
