// Inputs of public bug reports that need the whole program (../shared/data/reported, one folder per
// report): models whose configuration other programs wrote. docs/data_formats.md lists the others.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "support/test_support.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Reported : public JobTest {
 protected:
  void SetUp() override {
    if (!fs::exists(shared_data() / "reported"))
      GTEST_SKIP() << "needs the shared test data, which is absent: " << shared_data();
    fs::copy(kDemo / "model", path("model"), fs::copy_options::recursive);
  }
  // Merges `changes` into a JSON file of the model; null removes a key.
  void edit(const std::string& file, const json& changes) const {
    ordered_json content = ordered_json::parse(read_file(path("model") / file));
    content.merge_patch(changes);
    write_file(path("model") / file, content.dump());
  }
  // The command of a report's command.sh.
  Words train(const std::string& task, const std::string& report, const char* file) const {
    return {kProgram,
            task,
            "--model_name_or_path",
            path("model").native(),
            "--train_file",
            (shared_data() / "reported" / report / file).native(),
            "--do_train",
            "--max_steps",
            "1",
            "--max_seq_length",
            "16",
            "--report_to",
            "none",
            "--overwrite_output_dir",
            "--output_dir",
            path("out").native()};
  }
  ordered_json saved_config() const {
    return ordered_json::parse(read_file(path("out/config.json")));
  }
};

// Expected: transformers 4.57.6.
TEST_F(Reported, F01NumbersInId2label) {
  edit("config.json", {{"architectures", {"BertForSequenceClassification"}},
                       {"id2label", {{"0", 0}, {"1", 1}}},
                       {"label2id", {{"0", 0}, {"1", 1}}}});
  run_ok(train("run_glue", "F01_id2label_int", "train.csv"));
  const ordered_json names = {{"0", "trade"}, {"1", "travel"}, {"2", "weather"}};
  EXPECT_EQ(saved_config().at("id2label"), names);
}

TEST_F(Reported, F20NumLabelsAndId2labelThatDisagree) {
  edit("config.json", {{"num_labels", 2},
                       {"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}},
                       {"label2id", {{"a", 0}, {"b", 1}, {"c", 2}}}});
  run_ok(train("run_glue", "F20_num_labels_and_id2label", "train.csv"));
  edit("config.json", {{"num_labels", nullptr},
                       {"id2label", {{"0", nullptr}, {"1", "a"}, {"2", "b"}, {"3", "c"}}}});
  run_ok(train("run_glue", "F20_num_labels_and_id2label", "train.csv"));
}

TEST_F(Reported, F03ForeignTokenizerClasses) {
  fs::remove(path("model/tokenizer.json"));
  const auto expect_refused = [&](const std::string& name) {
    // GPT-2's class is known and needs its own files.
    const std::string text = (name == "GPT2Tokenizer" ? "class is " : "tokenizer_class is ") + name;
    EXPECT_THAT(
        run({kProgram, "inspect", "tokens", "--model", path("model").native(), "Tokyo"}).err,
        HasSubstr(text));
    const ProcessResult job = run(train("run_ner", "F03_foreign_tokenizer_class", "train.json"));
    EXPECT_EQ(job.exit_code, 1);
    EXPECT_THAT(unwrapped(job.err), HasSubstr(text));
    EXPECT_FALSE(fs::exists(path("out/config.json")));
  };
  for (const char* name : {"BertJapaneseTokenizer", "GPT2Tokenizer", "CamembertTokenizer"}) {
    edit("config.json", {{"tokenizer_class", nullptr}});
    edit("tokenizer_config.json", {{"tokenizer_class", name}, {"word_tokenizer_type", "mecab"}});
    expect_refused(name);
    edit("tokenizer_config.json", {{"tokenizer_class", nullptr}, {"word_tokenizer_type", nullptr}});
    edit("config.json", {{"tokenizer_class", name}});
    expect_refused(name);
  }
}

// The file is made as in the report: model.double().save_pretrained().
TEST_F(Reported, F26WeightsInFloat64) {
  run_ok({"python3", "-c", R"(
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body, wide = json.loads(data[8:8 + size]), data[8 + size:], b""
for name, entry in header.items():
    if name == "__metadata__": continue
    begin, end = entry["data_offsets"]
    values = struct.unpack(f"<{(end - begin) // 4}f", body[begin:end])
    packed = struct.pack(f"<{len(values)}d", *values)
    entry.update(dtype="F64", data_offsets=[len(wide), len(wide) + len(packed)])
    wide += packed
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + wide)
)",
          path("model/model.safetensors").native()});
  run_ok(train_command("plain", {"--max_steps", "2"}));
  Words command = train_command("wide", {"--max_steps", "2"});
  *(std::ranges::find(command, "--model_name_or_path") + 1) = path("model").native();
  run_ok(command);
  EXPECT_TRUE(weights("plain") == weights("wide"));
}

TEST_F(Reported, F23TwoDashesBehindTheScript) {
  EXPECT_THAT(run_ok({kProgram, "run", "--standalone", "--nproc-per-node", "1", "run_qa.py", "--",
                      "--help"})
                  .out,
              HasSubstr("usage: tandem run_qa"));
}

}  // namespace
}  // namespace tandem::testing
