// `tandem ask`, `tandem predict` and their like with the files and models that people have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/cli_program.h"
#include "support/model_with_head.h"
#include "support/test_support.h"
#include "tandem/core/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::model_with_head;

// --- byte order marks ---

constexpr const char* kMark = "\xef\xbb\xbf";

TEST(ByteOrderMark, IsNoPartOfAContext) {
  const testing::TemporaryFolder folder;
  const std::string model = model_with_head(folder / "model", "ForQuestionAnswering");
  const std::string text = "The ferry to Oslo leaves at nine.";
  write_file(folder / "plain", text);
  write_file(folder / "bom", kMark + text);
  const auto ask = [&](const std::string& file) {
    return tandem({"ask", "--model", model, "--context", (folder / file).string(), "--json",
                   "--n_best", "20", "When?"})
        .out;
  };
  ASSERT_THAT(ask("plain"), HasSubstr("\"start\": 0"));
  EXPECT_EQ(ask("bom"), ask("plain"));
  const std::string command = "ask --model '{}' --context - --json --n_best 20 'When?' < '{}'";
  EXPECT_EQ(tandem_shell(fmt::format(fmt::runtime(command), model, (folder / "bom").string())).out,
            ask("plain"));
}

TEST(ByteOrderMark, IsNoPartOfALine) {
  const testing::TemporaryFolder folder;
  const std::string text = "The ferry leaves\nKim sails\n";
  write_file(folder / "plain", text);
  write_file(folder / "bom", kMark + text);
  for (const char* kind : {"ForSequenceClassification", "ForTokenClassification"}) {
    const std::string model = model_with_head(folder / kind, kind, {"O", "B-PER", "B-SHIP"});
    const auto predict = [&](const std::string& file) {
      return tandem({"predict", "--model", model, "--json", "--file", (folder / file).string()})
          .out;
    };
    ASSERT_EQ(json_lines(predict("plain")).size(), 2u);
    EXPECT_EQ(predict("bom"), predict("plain"));
    const std::string input = fmt::format("predict --model '{}' --json --file - < '{}'", model,
                                          (folder / "bom").string());
    EXPECT_EQ(tandem_shell(input).out, predict("plain"));
  }
}

// As Windows' editors save "Unicode".
TEST(ByteOrderMark, OfUtf16IsAnError) {
  const testing::TemporaryFolder folder;
  const std::string reader = model_with_head(folder / "reader", "ForQuestionAnswering");
  const std::string model = model_with_head(folder / "model", "ForSequenceClassification", {"a"});
  std::string wide = "\xff\xfe";
  for (const char c : std::string("The ship\n")) wide += std::string{c, '\0'};
  const std::string file = (folder / "wide").string();
  write_file(file, wide);
  const std::string error = "is not UTF-8: found UTF-16, expected UTF-8; convert it with iconv";
  expect_failure(tandem({"ask", "--model", reader, "--context", file, "Who?"}), 1, error);
  expect_failure(tandem({"predict", "--model", model, "--file", file}), 1, error);
  expect_failure(tandem_shell(fmt::format("predict --model '{}' --file - < '{}'", model, file)), 1,
                 "standard input " + error);
}

// F25 of the reported inputs: a model with RoBERTa's tokenizer.
TEST(ByteOrderMark, ReportedFilesGiveTheSameScore) {
  const fs::path reported = testing::shared_data() / "reported" / "F25_bom_in_text_files";
  if (!fs::exists(reported / "bom.txt")) GTEST_SKIP() << "needs " << reported;
  const auto predict = [&](const std::string& file) {
    return tandem({"predict", "--model", (reported / "model_roberta").string(), "--json", "--file",
                   (reported / file).string()});
  };
  const auto bom = predict("bom.txt"), plain = predict("plain.txt");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(bom.out, plain.out);
}

}  // namespace
}  // namespace tandem
