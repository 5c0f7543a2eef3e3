// Tests of the tokenizer: goldens of Hugging Face, corner cases, files and their errors.
#include "tandem/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "support/golden_files.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::text {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::vector<std::int32_t> with_specials(const Tokenizer& tokenizer, const Encoding& encoding) {
  std::vector<std::int32_t> ids = {tokenizer.cls_token_id()};
  ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
  ids.push_back(tokenizer.sep_token_id());
  return ids;
}

std::vector<std::array<std::uint32_t, 2>> with_specials(const std::vector<Span>& offsets) {
  std::vector<std::array<std::uint32_t, 2>> out = {{0, 0}};
  for (const Span& span : offsets) out.push_back({span.begin, span.end});
  out.push_back({0, 0});
  return out;
}

void expect_encodings(const Tokenizer& tokenizer, const std::vector<Json>& rows) {
  Encoding encoding;
  int wrong = 0;
  for (const Json& row : rows) {
    tokenizer.encode(row["text"].get<std::string>(), encoding);
    const auto ids = row["input_ids"].get<std::vector<std::int32_t>>();
    const auto offsets = row["offsets"].get<std::vector<std::array<std::uint32_t, 2>>>();
    EXPECT_EQ(with_specials(tokenizer, encoding), ids) << row["text"];
    EXPECT_EQ(with_specials(encoding.offsets), offsets) << row["text"];
    if (::testing::Test::HasFailure() && ++wrong == 10) FAIL() << "further rows are not compared";
  }
}

class TokenizerGolden : public testing::MiniLmTest {};

TEST_F(TokenizerGolden, EveryString) {
  const auto rows =
      testing::read_gzip_json_lines(testing::shared_data() / "golden" / "tokens.jsonl.gz");
  ASSERT_EQ(rows.size(), 410u);
  expect_encodings(Tokenizer::load(testing::minilm_dir()), rows);
}

TEST_F(TokenizerGolden, EveryStringFromVocabTxtAlone) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy_file(testing::minilm_dir() / "vocab.txt", folder / "vocab.txt");
  const auto rows =
      testing::read_gzip_json_lines(testing::shared_data() / "golden" / "tokens.jsonl.gz");
  expect_encodings(Tokenizer::load(folder.path()), rows);
}

}  // namespace
}  // namespace tandem::text
