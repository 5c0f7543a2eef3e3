// A job whose task, head, family and layers are not tandem's own (run_toy.cc): it trains,
// evaluates, saves, resumes and runs in int8 like the others.
#include <gmock/gmock.h>

#include <random>

#include "e2e/job.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/pretrained/pretrained.h"
#include "toy/toy_family.h"
#include "toy/word_counts.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

class Toy : public JobTest {
 protected:
  Toy() {
    write_model();
    write_texts("train.csv", 400, 1);
    write_texts("eval.csv", 100, 2);
  }

  // With new weights.
  void write_model() const {
    std::filesystem::create_directory(path("model"));
    write_file(path("model") / "vocab.txt",
               "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\nblue\ngreen\n");
    // The model_type of a family that is not tandem's does not name its tokenizer.
    write_file(path("model") / "tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
    const models::Family* const known[] = {&toy::kToy};
    const models::EncoderModel model(
        models::ModelConfig::parse(
            R"({"model_type": "toy", "vocab_size": 8, "width": 32, "depth": 2, "heads": 2,
                "inner_width": 48, "max_position_embeddings": 32, "dropout": 0.1})",
            "config.json", known),
        models::make_head_of<toy::MeanHead>);
    std::vector<float> weights(model.layout().size());
    models::initialize_parameters(model.config(), model.layout(), weights, 7);
    models::save_pretrained(path("model"), model.config(), model.architecture(), model.layout(),
                            weights);
  }

  // Rows of 3 to 15 words, as many red as blue in none.
  void write_texts(const std::string& name, int count, unsigned seed) const {
    constexpr const char* kWords[] = {"red", "blue", "green"};
    std::mt19937 random(seed);
    std::string text = "text\n";
    while (count > 0) {
      std::string line;
      int balance = 0;
      for (std::size_t words = 3 + random() % 13; words > 0; --words) {
        const std::size_t word = random() % 3;
        balance += word == 0 ? 1 : word == 1 ? -1 : 0;
        line += std::string(line.empty() ? "" : " ") + kWords[word];
      }
      if (balance == 0) continue;
      text += line + "\n";
      --count;
    }
    write_file(path(name), text);
  }

  Words command(const std::string& model, const std::string& output, const Words& more) const {
    return with({TANDEM_RUN_TOY, "--model_name_or_path", path(model).native(), "--output_dir",
                 path(output).native(), "--train_file", path("train.csv").native(),
                 "--validation_file", path("eval.csv").native(), "--do_train", "--do_eval",
                 "--per_device_train_batch_size", "8", "--learning_rate", "2e-3"},
                more);
  }
  Words training(const std::string& output, const Words& more = {}) const {
    return command(
        "model", output,
        with({"--max_steps", "100", "--save_steps", "40", "--logging_steps", "20"}, more));
  }
  json read(const std::string& output, const std::string& file) const {
    return json::parse(read_file(path(output) / file));
  }
  double accuracy(const std::string& output) const {
    return read(output, "eval_results.json").at("eval_accuracy").get<double>();
  }
};

TEST_F(Toy, LearnsAndResumesToTheSameBits) {
  run_ranks(training("whole"), 2);
  EXPECT_GT(accuracy("whole"), 0.9);
  EXPECT_EQ(read("whole", "config.json").at("architectures").at(0), "ToyForWordCounts");
  run_ranks(
      training("resumed", {"--resume_from_checkpoint", (path("whole") / "checkpoint-40").native()}),
      2);
  EXPECT_TRUE(weights("whole") == weights("resumed"));
  EXPECT_EQ(accuracy("whole"), accuracy("resumed"));
  run_ok(training("one_rank", {"--logical_shards", "2"}));
  expect_equal_results("whole", "one_rank");
}

TEST_F(Toy, RunsInInt8) {
  run_ok(training("f32", {"--save_strategy", "no"}));
  run_ranks(
      command("f32", "int8",
              {"--apply_quantization", "--quantization_approach", "static",
               "--num_calibration_samples", "60", "--metric", "accuracy", "--verify_loading"}),
      2);
  const json found = read("int8", "quantization_results.json");
  EXPECT_TRUE(found.at("accepted").get<bool>());
  EXPECT_GT(found.at("int8_modules").get<int>(), 0);
  EXPECT_EQ(found.at("baseline_eval_accuracy"), accuracy("f32"));
  // The saved model, by itself.
  const Words evaluation = {
      TANDEM_RUN_TOY,         "--model_name_or_path", path("int8").native(),     "--output_dir",
      path("again").native(), "--validation_file",    path("eval.csv").native(), "--do_eval"};
  run_ok(evaluation);
  EXPECT_EQ(accuracy("again"), accuracy("int8"));
}

}  // namespace
}  // namespace tandem::testing
