// Tests of `tandem inspect`'s lines.
#include "tandem/tasks/question_answering/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <sstream>

#include "support/golden_files.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/data/read_questions.h"
#include "tandem/tasks/question_answering/test_data.h"

namespace tandem::question_answering {
namespace {

using ::testing::HasSubstr;
using testing::letter_tokenizer;
using testing::make_questions;

TEST(InspectTokens, JsonStringsAndWords) {
  std::istringstream input(R"("a\nz")"
                           "\n"
                           R"(["z", "ab a"])"
                           "\n");
  std::ostringstream output;
  inspect_tokens(letter_tokenizer(), true, input, output);
  EXPECT_EQ(output.str(),
            R"({"text":"a\nz","input_ids":[2,5,30,3],"tokens":["[CLS]","a","z","[SEP]"],)"
            R"("offsets":[[0,0],[0,1],[2,3],[0,0]],"word_ids":[null,0,1,null]})"
            "\n"
            R"({"text":["z","ab a"],"input_ids":[2,30,1,5,3],)"
            R"("tokens":["[CLS]","z","[UNK]","a","[SEP]"],)"
            R"("offsets":[[0,0],[0,1],[0,2],[3,4],[0,0]],"word_ids":[null,0,1,1,null]})"
            "\n");
  for (const char* broken : {"a", "3", "[1]"}) {
    std::istringstream lines(broken);
    EXPECT_THROW(inspect_tokens(letter_tokenizer(), true, lines, output), DataError) << broken;
  }
}

TEST(InspectTokens, OneObjectPerLine) {
  std::istringstream input("A cs\xc3\xa9\n\nz");
  std::ostringstream output;
  inspect_tokens(letter_tokenizer(), false, input, output);
  EXPECT_EQ(output.str(),
            R"({"text":"A cs\u00e9","input_ids":[2,5,1,3],"tokens":["[CLS]","a","[UNK]","[SEP]"],)"
            R"("offsets":[[0,0],[0,1],[2,5],[0,0]],"word_ids":[null,0,1,null]})"
            "\n"
            R"({"text":"","input_ids":[2,3],"tokens":["[CLS]","[SEP]"],"offsets":[[0,0],[0,0]],)"
            R"("word_ids":[null,null]})"
            "\n"
            R"({"text":"z","input_ids":[2,30,3],"tokens":["[CLS]","z","[SEP]"],)"
            R"("offsets":[[0,0],[0,1],[0,0]],"word_ids":[null,0,null]})"
            "\n");
  std::istringstream broken("a\n\xff\n");
  try {
    inspect_tokens(letter_tokenizer(), false, broken, output);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 2: text is not UTF-8 at byte 0"));
  }
}

TEST(InspectFeatures, FullLines) {
  const auto set = make_questions({{"i", "q", "a b", {{"a", 0}}}});
  FeatureOptions options;
  options.max_seq_length = 8;
  options.doc_stride = 1;
  ThreadPool pool(1);
  const auto features = build_features(letter_tokenizer(), set.examples(), options, pool);
  std::ostringstream output;
  inspect_features(features, set.examples(), options, true, output);
  std::istringstream lines(output.str());
  std::string header, line;
  std::getline(lines, header);
  std::getline(lines, line);
  EXPECT_EQ(header,
            R"({"set":"train","examples":1,"features":1,"max_length":8,"stride":1,"real_tokens":6,)"
            R"("total_tokens":8,"real_share":0.75,"cls_labelled":0,"last_token_labels":0})");
  EXPECT_THAT(line, HasSubstr(R"("id":"i","n_real":6,"input_ids":[2,21,3,5,6,3],)"
                              R"("token_type_ids":[0,0,0,1,1,1],"start":3,"end":3,"first_type1":3,)"
                              R"("offsets":[[-1,-1],[-1,-1],[-1,-1],[0,1],[2,3],[-1,-1]]})"));
}

// crc32 of the numbers as little-endian 32-bit integers, padded to `size`, as the goldens have it.
std::uint64_t checksum(const nlohmann::json& numbers, std::size_t size, std::int32_t pad) {
  std::vector<std::int32_t> values;
  for (const auto& entry : numbers) {
    if (entry.is_array()) {
      for (const auto& number : entry) values.push_back(number.get<std::int32_t>());
    } else {
      values.push_back(entry.get<std::int32_t>());
    }
  }
  values.resize(size, pad);
  return crc32(0, reinterpret_cast<const unsigned char*>(values.data()),
               static_cast<uInt>(values.size() * sizeof(std::int32_t)));
}

class InspectGolden : public tandem::testing::MiniLmTest {
 protected:
  static void replace_by_checksums(nlohmann::json& line, std::size_t length) {
    line["ids"] = checksum(line.at("input_ids"), length, 0);
    line["types"] = checksum(line.at("token_type_ids"), length, 0);
    const auto ones = nlohmann::json(std::vector<int>(line.at("n_real").get<std::size_t>(), 1));
    line["mask"] = checksum(ones, length, 0);
    if (line.contains("offsets")) line["offsets"] = checksum(line["offsets"], 2 * length, -1);
    for (const char* key : {"id", "input_ids", "token_type_ids"}) line.erase(key);
  }
  void compare(const std::string& golden, const std::string& squad, bool labels) {
    const auto rows =
        tandem::testing::read_gzip_json_lines(tandem::testing::shared_data() / "golden" / golden);
    const auto set = data::read_questions(tandem::testing::shared_data() / "squad" / squad);
    FeatureOptions options;
    options.labels = labels;
    options.padding = Padding::kMaxSeqLength;
    ThreadPool pool(2);
    const auto features = build_features(text::Tokenizer::load(tandem::testing::minilm_dir()),
                                         set.examples(), options, pool);
    std::ostringstream output;
    inspect_features(features, set.examples(), options, false, output);
    std::istringstream lines(output.str());
    std::string line;
    for (std::size_t i = 0; std::getline(lines, line); ++i) {
      ASSERT_LT(i, rows.size());
      auto mine = nlohmann::json::parse(line);
      if (i > 0) replace_by_checksums(mine, options.max_seq_length);
      for (const auto& [key, value] : mine.items()) {
        if (key == "last_token_labels") continue;  // ours
        ASSERT_EQ(value, rows[i][key]) << i << " " << key;
      }
    }
  }
};

TEST_F(InspectGolden, Train) { compare("train_features.jsonl.gz", "squad1-train-head.json", true); }
TEST_F(InspectGolden, Eval) { compare("eval_features.jsonl.gz", "xquad.en.json", false); }

}  // namespace
}  // namespace tandem::question_answering
