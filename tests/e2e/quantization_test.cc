// run_qa --apply_quantization on the demo's model: what is written, read again, refused, and that
// ranks change nothing.
#include <gmock/gmock.h>

#include <sstream>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Quantization : public JobTest {
 protected:
  // A model that was trained for a moment, in the folder "f32".
  void train_f32() const { run_ok(train_command("f32", {"--save_strategy", "no"})); }

  Words eval_command(const std::string& model, const std::string& output) const {
    const Words words = {kProgram,
                         "run_qa",
                         "--model_name_or_path",
                         path(model).native(),
                         "--output_dir",
                         path(output).native(),
                         "--max_seq_length",
                         "96",
                         "--doc_stride",
                         "32"};
    return with(words, eval_flags());
  }
  Words quantize_command(const std::string& model, const std::string& output,
                         const Words& more) const {
    return with(with(eval_command(model, output), {"--apply_quantization"}), more);
  }
  Words static_flags() const {
    return {"--quantization_approach", "static", "--do_train", "--train_file",
            (kDemo / "train.json").native(), "--max_train_samples", "50",
            "--num_calibration_samples", "30",
            // The model hardly knows anything: any metric will do.
            "--tolerance_criterion", "1"};
  }
  json read(const std::string& output, const std::string& file) const {
    return json::parse(read_file(path(output) / file));
  }
  // "name": the line of `tandem inspect weights`.
  std::map<std::string, json> tensors(const std::string& model) const {
    std::istringstream lines(run_ok({kProgram, "inspect", "weights", path(model).native()}).out);
    std::map<std::string, json> found;
    for (std::string line; std::getline(lines, line);) {
      const json tensor = json::parse(line);
      found[tensor.at("name")] = tensor;
    }
    return found;
  }
  void expect_equal_files(const std::string& a, const std::string& b, const Words& files) const {
    for (const std::string& file : files) {
      EXPECT_TRUE(read_file(path(a) / file) == read_file(path(b) / file)) << file;
    }
  }
};

// The guides' oldest command, with training in front: the int8 model answers as well, and its saved
// files give the same answers.
TEST_F(Quantization, ATrainedModelStaysWithinTheTolerance) {
  const ProcessResult result = run_ok({kProgram,
                                       "run_qa",
                                       "--model_name_or_path",
                                       (kDemo / "model").native(),
                                       "--do_train",
                                       "--do_eval",
                                       "--train_file",
                                       (kDemo / "train.json").native(),
                                       "--validation_file",
                                       (kDemo / "held_out.json").native(),
                                       "--apply_quantization",
                                       "--quantization_approach",
                                       "static",
                                       "--train_before_quantization",
                                       "--verify_loading",
                                       "--max_steps",
                                       "350",
                                       "--per_device_train_batch_size",
                                       "16",
                                       "--learning_rate",
                                       "1e-3",
                                       "--max_seq_length",
                                       "96",
                                       "--doc_stride",
                                       "32",
                                       "--save_strategy",
                                       "no",
                                       "--output_dir",
                                       path("int8").native()},
                                      {{"OMP_NUM_THREADS", "2"}});
  EXPECT_THAT(result.out, HasSubstr("The quantized model was successfully loaded."));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("calibration only")));
  const json found = read("int8", "quantization_results.json");
  EXPECT_EQ(found.at("accepted"), true);
  EXPECT_EQ(found.at("calibration_samples"), 100);
  EXPECT_EQ(found.at("int8_modules"), 12);
  EXPECT_GT(found.at("baseline_eval_f1").get<double>(), 60);
  EXPECT_GE(found.at("int8_eval_f1").get<double>(),
            0.95 * found.at("baseline_eval_f1").get<double>());
  EXPECT_EQ(read("int8", "eval_results.json").at("eval_f1"), found.at("int8_eval_f1"));

  // The n-best lists hold the logits with all their digits.
  Words command = eval_command("int8", "again");
  command.insert(command.end(), {"--max_eval_samples", "300"});
  run_ok(command);
  expect_equal_files("int8", "again", {"eval_predictions.json", "eval_nbest_predictions.json"});
  write_file(path("story.txt"), "The Melqueen sails to Norford. Dorla commands the Melqueen.");
  EXPECT_THAT(run_ok({kProgram, "ask", "--model", path("int8").native(), "--context",
                      path("story.txt").native(), "Who is the captain of the Melqueen?"})
                  .out,
              HasSubstr("Dorla (probability"));

  // With --bf16 the rest of the model is bf16: other logits, the same for any ranks, as good.
  const Words bf16 = with(eval_command("int8", "bf16"), {"--max_eval_samples", "300", "--bf16"});
  run_ok(bf16);
  run_ranks(with(bf16, {"--output_dir", path("bf16_of_two").native()}), 2);
  expect_equal_files("bf16", "bf16_of_two", {"eval_nbest_predictions.json"});
  EXPECT_NE(read_file(path("bf16") / "eval_nbest_predictions.json"),
            read_file(path("int8") / "eval_nbest_predictions.json"));
  EXPECT_GE(read("bf16", "eval_results.json").at("eval_f1").get<double>(),
            0.95 * found.at("baseline_eval_f1").get<double>());
  EXPECT_THAT(run_ok({kProgram, "ask", "--model", path("int8").native(), "--bf16", "--context",
                      path("story.txt").native(), "Who is the captain of the Melqueen?"})
                  .out,
              HasSubstr("Dorla (probability"));
}

TEST_F(Quantization, CalibrationChangesNoWeightAndRanksChangeNoByte) {
  train_f32();
  const ProcessResult one =
      run_ok(quantize_command("f32", "one", with(static_flags(), {"--verify_loading"})));
  EXPECT_THAT(one.out, AllOf(HasSubstr("calibration only, no fine-tuning"),
                             HasSubstr("calibration: 30 of 50 training features"),
                             HasSubstr("The quantized model was successfully loaded.")));
  run_ranks(quantize_command("f32", "two", with(static_flags(), {"--verify_loading"})), 2);
  run_ranks(quantize_command("f32", "three", static_flags()), 3, 2);
  for (const char* output : {"two", "three"}) {
    expect_equal_files("one", output,
                       {"model.safetensors", "config.json", "quantization_results.json",
                        "eval_predictions.json", "eval_nbest_predictions.json"});
  }
  // Another seed calibrates on other features.
  run_ok(quantize_command("f32", "seed", with(static_flags(), {"--seed", "7"})));
  EXPECT_FALSE(read_file(path("one") / "model.safetensors") ==
               read_file(path("seed") / "model.safetensors"));

  const auto f32 = tensors("f32"), int8 = tensors("one");
  int quantized = 0;
  for (const auto& [name, tensor] : f32) {
    const json& now = int8.at(name);
    if (now.at("dtype") == "I8") {
      ++quantized;
      EXPECT_EQ(now.at("shape"), tensor.at("shape"));
    } else {
      EXPECT_EQ(now.at("sha256"), tensor.at("sha256")) << name;
    }
  }
  EXPECT_EQ(quantized, 12);
  EXPECT_EQ(int8.size(), f32.size() + 3u * 12u);  // a weight_scale, an input_scale, a zero point
}

TEST_F(Quantization, DynamicNeedsNoTrainingFile) {
  train_f32();
  const Words any = {"--tolerance_criterion", "1"};
  run_ok(quantize_command("f32", "one", with(any, {"--verify_loading"})));
  run_ranks(quantize_command("f32", "two", any), 2);
  expect_equal_files("one", "two",
                     {"model.safetensors", "config.json", "eval_nbest_predictions.json"});
  const Words file = {"--do_train", "--train_file", (kDemo / "train.json").native()};
  EXPECT_THAT(run_ok(quantize_command("f32", "file", with(any, file))).out,
              HasSubstr("WARNING - __main__ - no fine-tuning"));
  expect_equal_files("one", "file", {"model.safetensors"});
  const json section = read("one", "config.json").at("quantization_config");
  EXPECT_EQ(section.at("config_groups").at("group_0").at("input_activations").at("strategy"),
            "token");
  EXPECT_EQ(tensors("one").count("bert.encoder.layer.0.output.dense.input_scale"), 0u);
  run_ok(eval_command("one", "again"));
  run_ranks(eval_command("one", "ranks"), 2);
  for (const char* output : {"again", "ranks"}) {
    expect_equal_files("one", output, {"eval_nbest_predictions.json"});
  }
}

// Training computes in bf16, what follows in int8 and f32; predictions are the int8 model's too.
TEST_F(Quantization, AJobTrainsInBf16AndPredictsInInt8) {
  const Words predict = {"--do_predict", "--test_file", (kDemo / "held_out.json").native(),
                         "--max_predict_samples", "10"};
  const Words flags = {"--bf16",
                       "--save_strategy",
                       "no",
                       "--apply_quantization",
                       "--train_before_quantization",
                       "--tolerance_criterion",
                       "1"};
  run_ranks(train_command("int8", with(with(flags, eval_flags()), predict)), 2);
  EXPECT_EQ(tensors("int8").at("bert.encoder.layer.1.output.dense.weight").at("dtype"), "I8");
  EXPECT_THAT(read_file(path("int8") / "README.md"), HasSubstr("a fine-tuned version in int8 of"));
  Words command = with(eval_command("int8", "again"), predict);
  command.insert(command.end(), {"--max_seq_length", "128"});
  run_ok(command);
  expect_equal_files("int8", "again",
                     {"eval_nbest_predictions.json", "predict_nbest_predictions.json"});
}

// The other tasks, from training to the int8 model on their disk: two ranks write the same bytes,
// and its evaluation and its predictions are repeated from the files.
class TaskQuantization : public Quantization, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    Quantization::SetUp();
    use(demo_task(GetParam()));
  }
};

TEST_P(TaskQuantization, IsThatOfOneRankAndOfItsFiles) {
  const DemoTask task = demo_task(GetParam());
  const Words flags = with(
      task.eval_flags, {"--apply_quantization", "--quantization_approach", "static",
                        "--train_before_quantization", "--verify_loading", "--tolerance_criterion",
                        "1", "--num_calibration_samples", "20", "--save_strategy", "no"});
  const ProcessResult one = run_ok(train_command("one", with(flags, {"--logical_shards", "2"})));
  EXPECT_THAT(one.out, HasSubstr("The quantized model was successfully loaded."));
  EXPECT_EQ(tensors("one").at("bert.encoder.layer.1.output.dense.weight").at("dtype"), "I8");
  run_ranks(train_command("two", flags), 2);
  expect_equal_files("one", "two", {"model.safetensors", "config.json", task.result_files[0]});

  Words again = {
      kProgram,       task.command,          "--model_name_or_path", path("one").native(),
      "--output_dir", path("again").native()};
  again = with(with(again, task.eval_flags), {"--max_seq_length", "64"});
  // The labels of classes are those of the training file.
  if (task.command != "run_qa") again = with(again, {"--train_file", task.train_flags[1]});
  run_ok(again);
  expect_equal_files("one", "again", {task.result_files[0]});
  const json before = read("one", "eval_results.json"), after = read("again", "eval_results.json");
  for (const auto& [key, value] : before.items()) {
    if (key.ends_with("loss") || key.ends_with("accuracy") || key.ends_with("f1")) {
      EXPECT_EQ(after.at(key), value) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, TaskQuantization,
                         ::testing::Values("run_ner", "run_glue", "run_classification"),
                         [](const auto& task) { return std::string(task.param); });

// With slow kernels and many questions the metric of the f32 model alone takes a while.
TEST_F(Quantization, TerminatedInItEndsAtOnce) {
  train_f32();
  Process process(quantize_command("f32", "int8",
                                   {"--validation_file", (kDemo / "train.json").native(),
                                    "--max_eval_samples", "6000", "--quantization_approach",
                                    "dynamic", "--per_device_eval_batch_size", "1"}),
                  {{"OMP_NUM_THREADS", "1"}, {"TANDEM_KERNELS", "reference"}});
  while (process.running() && process.out_so_far().find("*** Quantization") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  expect_to_end_at_once(process);
  EXPECT_FALSE(fs::exists(path("int8") / "model.safetensors"));
  for (const fs::path& file : list_directory(path("int8")))
    EXPECT_EQ(file.filename().native().find(".tmp-"), std::string::npos) << file;
}

TEST_F(Quantization, AnImpossibleToleranceEndsWithTheNumbersAndTheBestModelAside) {
  train_f32();
  const ProcessResult result = run(
      quantize_command("f32", "out",
                       with(static_flags(), {"--tolerance_criterion", "-1", "--max_trials", "3"})),
      {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no int8 model is within the tolerance"), HasSubstr("in f32 and"),
                    HasSubstr("after 3 trials"), HasSubstr("allowed are -100.00 %"),
                    HasSubstr("int8_below_tolerance")));
  EXPECT_THAT(result.out, HasSubstr("int8 trial 3 of at most 3: "));
  EXPECT_FALSE(fs::exists(path("out") / "model.safetensors"));
  EXPECT_FALSE(fs::exists(path("out") / "eval_predictions.json"));
  const json found = read("out/int8_below_tolerance", "quantization_results.json");
  EXPECT_EQ(found.at("accepted"), false);
  EXPECT_EQ(found.at("trials").size(), 3u);
  EXPECT_EQ(found.at("trials")[2].at("f32_layers"), json::array({"bert.encoder.layer.1"}));
  run_ok(eval_command("out/int8_below_tolerance", "again"));
  EXPECT_EQ(read("again", "eval_results.json").at("eval_f1"), found.at("int8_eval_f1"));
}

TEST_F(Quantization, Int8IsNeitherTrainedNorQuantizedAgainAndBrokenConfigsAreRefused) {
  train_f32();
  run_ok(quantize_command("f32", "int8", {"--tolerance_criterion", "1"}));
  const auto expect_failure = [&](const Words& command, const std::vector<std::string>& needles) {
    const ProcessResult result = run(command, {{"OMP_NUM_THREADS", "1"}});
    EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
    for (const std::string& needle : needles) EXPECT_THAT(result.err, HasSubstr(needle));
  };
  expect_failure(with(train_command("out"), {"--model_name_or_path", path("int8").native()}),
                 {path("int8").native(), "cannot be trained", "give the f32 model"});
  expect_failure(quantize_command("int8", "out", {}), {"cannot be quantized again"});
  expect_failure(quantize_command("f32", "f32", {}), {"where the model in f32 lies"});
  EXPECT_FALSE(fs::exists(path("out") / "model.safetensors"));

  write_file(path("story.txt"), "Dorla commands the ship.");
  expect_failure({kProgram, "predict", "--model", path("int8").native(), "Who?"},
                 {"trained for question answering; use tandem ask"});

  json config = read("int8", "config.json");
  config["quantization_config"]["quant_method"] = "gptq";
  write_file(path("int8") / "config.json", config.dump());
  expect_failure(eval_command("int8", "out"), {"config.json", "gptq", "compressed-tensors"});
  expect_failure({kProgram, "ask", "--model", path("int8").native(), "--context",
                  path("story.txt").native(), "Who?"},
                 {"gptq"});
  config.erase("quantization_config");  // an ordinary model with weights in I8
  write_file(path("int8") / "config.json", config.dump());
  expect_failure(eval_command("int8", "out"), {"model.safetensors", "I8", "expected F32"});
}

}  // namespace
}  // namespace tandem::testing
