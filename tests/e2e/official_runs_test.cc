// Whole runs of the official scripts, repeated with tandem: results and prediction files
// (../shared/data/golden/tasks/official_runs.json.gz).
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "support/golden_files.h"
#include "support/process.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class OfficialRun : public SharedDataTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    SharedDataTest::SetUp();
    if (IsSkipped()) return;
    golden_ = read_gzip_json(shared_data() / "golden/tasks/official_runs.json.gz").at(GetParam());
    // Files that the script's runs read in addition to the shared data.
    write_file(
        folder_ / "ner_words.json",
        "{\"words\": [\"a\", \"b\"], \"tags\": [\"O\", \"B-x\"], \"id\": 1}\n"
        "{\"words\": [\"c\", \"\"], \"tags\": [\"B-x\", \"I-x\"], \"id\": 2}\n"
        "{\"words\": [\"c\", \"d\", \"e\"], \"tags\": [\"I-x\", \"B-y\", \"O\"], \"id\": 3}\n");
    write_file(folder_ / "ints.csv", "sentence,label\na,10\nb,9\nc,1\nd,2\ne,10\n");
    write_file(folder_ / "strlabel.json",
               "{\"sentence\": \"good film\", \"label\": \"pos\"}\n"
               "{\"sentence\": \"bad film\", \"label\": \"neg\"}\n"
               "{\"sentence\": \"fine\", \"label\": \"pos\"}\n"
               "{\"sentence\": \"odd\", \"label\": \"neutral\"}\n");
  }

  // "run_ner.py --flag DATA/…" as a command of tandem.
  std::vector<std::string> command() const {
    std::istringstream line(golden_.at("command").get<std::string>());
    std::vector<std::string> words{(fs::path(TANDEM_BINARY_DIR) / "bin" / "tandem").native()};
    for (std::string word; line >> word;) {
      if (word == "|") word = " | ";  // the only value with blanks
      replace(word, "MODELS/", (shared_data() / "golden/tasks/models/").native());
      replace(word, "DATA/", (shared_data() / "tasks/").native());
      replace(word, "TMP/out/", (folder_ / "").native());
      replace(word, "TMP/", (folder_ / "").native());
      words.push_back(words.size() == 1 ? fs::path(word).stem().native() : word);
    }
    return words;
  }
  static void replace(std::string& word, std::string_view from, const std::string& to) {
    if (word.starts_with(from)) word = to + word.substr(from.size());
  }
  std::string file(const std::string& name) const { return read_file(folder_ / GetParam() / name); }

  // Times are another machine's, losses and errors are sums of rounded numbers, scores are exact.
  void compare_results(const std::string& name, const json& expected) const {
    const json found = json::parse(file(name));
    for (const auto& [key, value] : expected.items()) {
      if (key.find("runtime") != key.npos || key.find("per_second") != key.npos) continue;
      ASSERT_TRUE(found.contains(key)) << name << ": " << key;
      if (key.ends_with("loss") || key.ends_with("mse")) {
        EXPECT_NEAR(found[key].get<double>(), value.get<double>(), 1e-5 * value.get<double>())
            << name << ": " << key;
      } else {
        EXPECT_EQ(found[key], value) << name << ": " << key;
      }
    }
  }

  // run_glue.py leaves the names of id2label at LABEL_0 …, and with label smoothing, whose loss is
  // not the model's, problem_type unset. Ours are right.
  bool leaves_unset(std::string_view key) const {
    const auto words = command();
    return (key == "id2label" && words[1] == "run_glue") ||
           (key == "problem_type" &&
            std::find(words.begin(), words.end(), "--label_smoothing_factor") != words.end());
  }

  json golden_;
  TemporaryFolder folder_;
};

TEST_P(OfficialRun, HasTheSameResults) {
  const ProcessResult result =
      run(command(), {{"OMP_NUM_THREADS", "2"}}, std::chrono::seconds(240));
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const auto& [name, text] : golden_.at("files").items()) {
    if (name.ends_with("_results.json")) {
      compare_results(name, json::parse(text.get<std::string>()));
    } else if (name.starts_with("predict") && name.ends_with(".txt")) {
      EXPECT_EQ(file(name), text.get<std::string>()) << name;
    } else if (name == "config.json") {
      const json expected = json::parse(text.get<std::string>()), found = json::parse(file(name));
      for (const char* key : {"label2id", "id2label", "finetuning_task", "problem_type"}) {
        if (leaves_unset(key)) continue;
        EXPECT_EQ(found.value(key, json()), expected.value(key, json())) << key;
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<const char*>& one) { return one.param; }

INSTANTIATE_TEST_SUITE_P(Ner, OfficialRun,
                         ::testing::Values("ner_roberta", "ner_electra_entity_all_tokens",
                                           "ner_xlmr_pad_max", "ner_accumulation_distilbert",
                                           "x_ner_other_columns"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Texts, OfficialRun,
    ::testing::Values("glue_file_single_distilbert", "glue_file_pair_roberta",
                      "glue_file_regression_xlmr", "glue_file_dynamic_padding_electra",
                      "glue_file_accumulation_roberta", "glue_file_label_smoothing_roberta",
                      "classification_columns_electra", "classification_multilabel_roberta",
                      "classification_regression_distilbert", "classification_shuffle_xlmr",
                      "x_glue_string_labels_json", "x_glue_int_labels_not_from_zero"),
    name_of);

}  // namespace
}  // namespace tandem::testing
