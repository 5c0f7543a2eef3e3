// `tandem bench`: what it is made of, and the program from outside. No figure is judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "apps/bench/data.h"
#include "apps/bench/measure.h"
#include "apps/bench/session.h"
#include "apps/bench/training.h"
#include "support/model_with_head.h"
#include "support/process.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/kernels/attention.h"
#include "tandem/kernels/tuned_tiles.h"

namespace tandem::apps::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(BenchMeasure, MedianAndSpread) {
  const Statistics odd = statistics({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(statistics({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(statistics({7}).median, 7);
}

TEST(BenchMeasure, APercentileIsAMeasuredValue) {
  std::vector<double> values(100);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(100 - i);
  EXPECT_EQ(percentile(values, 50), 50);
  EXPECT_EQ(percentile(values, 99), 99);
  EXPECT_EQ(percentile(values, 100), 100);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile({7}, 99), 7);
  EXPECT_EQ(percentile({3, 1}, 50), 1);
}

TEST(BenchMeasure, EveryExecutionHasACalibratorOnBothSides) {
  int calibrations = 0;
  int executions[2] = {0, 0};
  const std::vector<std::function<void()>> works = {[&] { ++executions[0]; },
                                                    [&] { ++executions[1]; }};
  Rounds rounds(3, 3);
  const auto samples = measure(
      rounds, [&] { return Calibration{.rate = static_cast<double>(++calibrations)}; }, works);
  EXPECT_EQ(calibrations, 1 + 2 * 3);
  ASSERT_EQ(samples.size(), 2u);
  for (const Samples& one : samples) EXPECT_EQ(one.seconds.size(), 3u);
  // The means of neighbouring calibrations, the second work first in the second round.
  EXPECT_EQ(samples[0].peaks, (std::vector<double>{1.5, 4.5, 5.5}));
  EXPECT_EQ(samples[1].peaks, (std::vector<double>{2.5, 3.5, 6.5}));
  EXPECT_GT(executions[0], 3);
  const Samples fixed = {.seconds = {0.5, 0.25}, .peaks = {8, 16}};
  EXPECT_EQ(fixed.rates(2).median, 6);
  EXPECT_EQ(fixed.shares(2).median, 0.5);
}

// Rounds 0 and 2 have a disturbed calibrator at one of their ends.
TEST(BenchMeasure, RoundsThatOthersDisturbAreReplaced) {
  const auto disturbed = [](int calibration) { return calibration == 0 || calibration == 3; };
  int calibrations = 0;
  const auto calibrate = [&] {
    const int n = calibrations++;
    return Calibration{.rate = static_cast<double>(n), .undisturbed = !disturbed(n)};
  };
  const std::vector<std::function<void()>> works = {[] {}};
  Rounds replaced(3, 12);
  EXPECT_EQ(measure(replaced, calibrate, works)[0].peaks, (std::vector<double>{1.5, 4.5, 5.5}));
  EXPECT_EQ(replaced.made(), 6);
  EXPECT_TRUE(replaced.enough());

  calibrations = 0;
  Rounds missing(4, 4);  // one of four
  EXPECT_EQ(measure(missing, calibrate, works)[0].peaks, (std::vector<double>{0.5, 1.5, 2.5, 3.5}));
  EXPECT_EQ(missing.undisturbed(), 1);
  EXPECT_FALSE(missing.enough());
}

TEST(BenchData, LengthsHaveTheMeanOfTheirDataSet) {
  const auto mean = [](const char* name, std::size_t count, std::size_t seq) {
    double tokens = 0;
    for (const std::uint32_t length : named_lengths(name, count, seq)) tokens += length;
    return tokens / static_cast<double>(count);
  };
  for (const std::size_t count : {12, 24, 36}) {
    EXPECT_NEAR(mean("squad", count, 384) / 384, 0.456, 0.002) << count;
    EXPECT_NEAR(mean("sst2", count, 128), 23.34, 0.1) << count;
    EXPECT_EQ(mean("padded", count, 128), 128) << count;
  }
  for (const std::uint32_t length : named_lengths("squad", 24, 128)) EXPECT_LE(length, 128u);
  EXPECT_THROW(named_lengths("tweets", 1, 1), InvalidArgument);
}

TEST(BenchData, ErrorsAreSharesOfTheBound) {
  const std::vector<float> want = {1, 2, 3};
  std::vector<float> got = want;
  EXPECT_EQ(worst_error<float>(got, want, 0), 0);
  got[1] = 2.5f;
  EXPECT_NEAR(worst_error<float>(got, want, 0.25), 2, 1e-5);
  got[2] = std::nanf("");
  EXPECT_GT(worst_error<float>(got, want, 1e30), 1);
}

TEST(BenchData, NamedModelsAreValid) {
  for (const std::string& name : model_names()) named_model(name).validate(name);
  EXPECT_THROW(named_model("gpt"), InvalidArgument);
}

models::ModelConfig tiny_model() {
  models::ModelConfig config;
  config.vocab_size = 40;
  config.hidden_size = 32;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 48;
  config.max_position_embeddings = 16;
  config.qa_dropout = 0.1;
  return config;
}

TEST(BenchStep, AProfileChangesNoBitAndItsStagesFitIntoTheStep) {
  for (const nn::Precision precision : {nn::Precision::kFloat32, nn::Precision::kBfloat16}) {
    ThreadPool threads(2);
    const Machine machine(threads, "");
    Training plain(machine.context(), tiny_model(), precision, {9, 16, 1});
    Training profiled(machine.context(), tiny_model(), precision, {9, 16, 1});
    Profile profile;
    for (int step = 0; step < 3; ++step) {
      profile.clear();
      const trainer::StepResult want = plain.step(nullptr);
      trainer::StepResult got;
      const double seconds = seconds_of([&] { got = profiled.step(&profile); });
      EXPECT_EQ(got.record.loss(0), want.record.loss(0));
      EXPECT_EQ(got.grad_norm, want.grad_norm);
      EXPECT_LE(std::chrono::duration<double>(profile.total()).count(), seconds);
    }
    const auto same = std::memcmp(plain.weights().data(), profiled.weights().data(),
                                  plain.weights().size_bytes());
    EXPECT_EQ(same, 0);
    std::vector<std::string> stages;
    for (const Profile::Stage& stage : profile.stages()) {
      stages.push_back(fmt::format("{} {} {}", stage.name, stage.part, stage.calls));
    }
    // Two layers; the head drops in both directions. bf16 does not keep the input of the second
    // layer either.
    const bool bf16 = precision == nn::Precision::kBfloat16;
    EXPECT_THAT(stages,
                ::testing::UnorderedElementsAre(
                    "batch load 1", "embeddings forward 1", "embeddings backward 1",
                    "qkv forward 2", "qkv dX 2", "qkv dW 2", "attention forward 2",
                    "attention backward 2", "attention output forward 2", "attention output dX 2",
                    "attention output dW 2", "layer norm forward 4", "layer norm backward 4",
                    bf16 ? "layer norm recompute 3" : "layer norm recompute 2", "up forward 2",
                    "up dX 2", "up dW 2", "activation forward 2", "activation backward 2",
                    "down forward 2", "down dX 2", "down dW 2", "head dropout 2", "head forward 1",
                    "head dX 1", "head dW 1", "loss forward 1", "loss backward 1",
                    "gradient reduction, norm 5", "optimizer update 1"));
  }
}

// --- from outside ---

const std::set<std::string> kKernelBenches = {"gemm",     "attention", "elementwise", "optimizer",
                                              "tokenize", "answers",   "tune"};

// A bench of the product, or one of kernel_bench.
testing::ProcessResult bench(std::vector<std::string> words) {
  const fs::path programs = fs::path(TANDEM_BINARY_DIR) / "bin";
  const bool kernels = !words.empty() && kKernelBenches.contains(words.front());
  if (!kernels) words.insert(words.begin(), "bench");
  words.insert(words.begin(), (programs / (kernels ? "kernel_bench" : "tandem")).string());
  return testing::run(words, {{"OMP_NUM_THREADS", "1"}});
}

json results_of(std::vector<std::string> words) {
  words.insert(words.end(), {"--rounds", "1", "--json"});
  const auto done = bench(words);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const json object = json::parse(done.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(object.is_object()) << done.out;
  if (!object.is_object()) return json::array();
  EXPECT_EQ(object["bench"], words.front());
  EXPECT_EQ(object["rounds"], 1);
  EXPECT_THAT(object["kernels"].get<std::string>(), HasSubstr("gemm="));
  EXPECT_FALSE(object["results"].empty());
  return object["results"];
}

void expect_verified_and_timed(const json& result) {
  EXPECT_EQ(result["verified"], true) << result;
  EXPECT_LE(result["error"].get<double>(), 1) << result;
  for (const char* key : {"seconds", "rate", "share"}) {
    EXPECT_GT(result[key]["median"].get<double>(), 0) << result;
    EXPECT_LE(result[key]["min"], result[key]["max"]) << result;
  }
}

TEST(BenchProgram, HelpAndUsageErrors) {
  const auto help = bench({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* name : {"peak", "step", "predict", "comm"})
    EXPECT_THAT(help.out, HasSubstr(name));
  for (const char* name : {"peak", "gemm", "attention", "elementwise", "optimizer", "step",
                           "tokenize", "answers", "predict", "comm", "tune"}) {
    EXPECT_THAT(bench({name, "--help"}).out, HasSubstr("--rounds")) << name;
  }
  const auto expect_error = [](const std::vector<std::string>& words, int code,
                               const std::string& message) {
    const auto done = bench(words);
    EXPECT_EQ(done.exit_code, code) << done.err;
    EXPECT_THAT(done.err, HasSubstr(message));
    EXPECT_THAT(done.out, IsEmpty());
  };
  expect_error({}, 2, "usage: tandem bench peak|step");
  expect_error({"stop"}, 2, "unknown bench 'stop', did you mean 'step'?");
  expect_error({"gemm", "--dtype", "f16"}, 2, "--dtype");
  expect_error({"gemm", "--rounds", "0"}, 2, "--rounds");
  expect_error({"gemm", "--frobnicate"}, 2, "--frobnicate");
  expect_error({"gemm", "--model", "gpt"}, 2, "--model");
  expect_error({"gemm", "--only", "no such product"}, 1, "nothing was measured");
  expect_error({"gemm", "--kernels", "gemm=fast"}, 1, "gemm has no implementation 'fast'");
  expect_error({"step", "--model", "/no/such/model"}, 1, "'/no/such/model'");
  expect_error({"tokenize"}, 2, "--model");
  expect_error({"answers", "--model", "bert"}, 2, "file");
  expect_error({"predict", "--model", "x"}, 2, "--file");
  expect_error({"predict", "--model", "x", "--file", "y", "--batch", "0"}, 2, "--batch");
}

// Models of labels, of labels of words, and of embeddings, with texts of several lengths.
TEST(BenchProgram, PredictTimesRequestsOfEachSize) {
  testing::TemporaryFolder folder;
  write_file(folder.path() / "texts.txt",
             "A short text\n\nA text of more words, which needs more tokens than the first one\n"
             "third\n");
  const std::string texts = (folder.path() / "texts.txt").string();
  const std::string models[] = {
      testing::model_with_head(folder.path() / "labels", "ForSequenceClassification", {"a", "b"}),
      testing::model_with_head(folder.path() / "tokens", "ForTokenClassification", {"O", "B-x"}),
      TANDEM_SOURCE_DIR "/examples/demo/model"};
  for (const std::string& model : models) {
    const auto done = bench({"predict", "--model", model, "--file", texts, "--batch", "1,4",
                             "--rounds", "2", "--seconds", "0.01", "--json"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    const json object = json::parse(done.out);
    EXPECT_EQ(object["texts"], 3);
    EXPECT_GT(object["mean_tokens"].get<double>(), 1);
    ASSERT_EQ(object["results"].size(), 2u);
    for (const json& result : object["results"]) {
      EXPECT_EQ(result["verified"], true);
      EXPECT_GE(result["requests"].get<int>(), 2);
      EXPECT_GT(result["rate"]["median"].get<double>(), 0);
      EXPECT_GT(result["p50_seconds"].get<double>(), 0);
      // A share of 1 % is not known from fewer than 100 requests.
      EXPECT_EQ(result["p99_seconds"].is_null(), result["requests"].get<int>() < 100);
    }
    EXPECT_EQ(object["results"][1]["batch"], 4);
  }
}

TEST(BenchProgram, PredictRefusesWhatItCannotTime) {
  testing::TemporaryFolder folder;
  write_file(folder.path() / "empty.txt", "\n\n");
  const std::string questions =
      testing::model_with_head(folder.path() / "questions", "ForQuestionAnswering");
  const auto none =
      bench({"predict", "--model", questions, "--file", (folder.path() / "empty.txt").string()});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("has no text"));
  write_file(folder.path() / "texts.txt", "a text\n");
  const auto other =
      bench({"predict", "--model", questions, "--file", (folder.path() / "texts.txt").string()});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("found a model of question answering"));
}

TEST(BenchProgram, Gemm) {
  for (const char* part : {"forward", "dX", "dW"}) {
    for (const char* layer : {"attention output", "qkv"}) {
      const std::string name = fmt::format("minilm {} {}x384 {}", layer,
                                           std::string_view(layer) == "qkv" ? 1152 : 384, part);
      const json results =
          results_of({"gemm", "--model", "minilm", "--batch", "1", "--seq", "70", "--only", name});
      ASSERT_EQ(results.size(), 2u);
      for (const json& result : results) {
        EXPECT_EQ(result["name"], name);
        EXPECT_EQ(result["unit"], "GFLOP/s");
        EXPECT_GT(result["peak"].get<double>(), 0);
        expect_verified_and_timed(result);
      }
      EXPECT_EQ(results[0]["dtype"], "f32");
      EXPECT_EQ(results[1]["dtype"], "bf16");
    }
  }
}

// Compared with f32 and bf16 in the same run; the int8 kernels agree with the reference to the bit.
TEST(BenchProgram, GemmInInt8) {
  const std::string name = "minilm attention output 384x384 forward";
  const json results = results_of({"gemm", "--model", "minilm", "--batch", "1", "--seq", "70",
                                   "--dtype", "int8", "--only", name});
  std::vector<std::string> found;
  for (const json& result : results) {
    expect_verified_and_timed(result);
    found.push_back(result["dtype"].get<std::string>() + " " + result["name"].get<std::string>());
    if (result["dtype"] == "int8") {
      EXPECT_EQ(result["error"], 0);
    }
  }
  EXPECT_THAT(found, ::testing::ElementsAre("f32 " + name, "bf16 " + name, "int8 " + name,
                                            "int8 " + name + ", dynamic"));
}

TEST(BenchProgram, AgainstAnotherImplementation) {
  const json results =
      results_of({"gemm", "--model", "minilm", "--batch", "1", "--seq", "64", "--dtype", "f32",
                  "--only", "attention output 384x384 forward", "--against", "onednn"});
  ASSERT_EQ(results.size(), 1u);
  expect_verified_and_timed(results[0]);
  EXPECT_EQ(results[0]["against"]["implementation"], "onednn");
  EXPECT_GT(results[0]["against"]["ratio"]["median"].get<double>(), 0);
}

TEST(BenchProgram, Attention) {
  const json results = results_of(
      {"attention", "--batch", "3", "--seq", "40", "--lengths", "squad", "--only", "12x32"});
  ASSERT_EQ(results.size(), 4u);
  for (const json& result : results) expect_verified_and_timed(result);
}

TEST(BenchProgram, Elementwise) {
  const json results =
      results_of({"elementwise", "--model", "minilm", "--batch", "2", "--seq", "50"});
  EXPECT_EQ(results.size(), 20u);
  for (const json& result : results) expect_verified_and_timed(result);
}

// The tiles that a run wrote are read; a file that is broken or another machine's is named, and the
// kernels keep their own.
TEST(TunedTiles, AreReadWhereTheyFit) {
  testing::TemporaryFolder folder;
  const Environment environment({{"XDG_CACHE_HOME", folder.path().string()}});
  const auto select = [] { return kernels::select_kernels(kernels::CpuFeatures::detect()); };
  kernels::KernelSet tuned = select();
  EXPECT_THAT(kernels::load_tuned_tiles(environment, tuned), IsEmpty());
  tuned.gemm_tiles_bf16 = {.b_ahead = {96, 192}, .b_staged = {}};
  tuned.gemm_tiles_f32.b_staged = {192, 768};
  const fs::path file = kernels::tuned_tiles_file(environment).value();
  kernels::save_tuned_tiles(file, tuned);
  kernels::KernelSet read = select();
  EXPECT_THAT(kernels::load_tuned_tiles(environment, read), HasSubstr(file.string()));
  EXPECT_EQ(read.gemm_tiles_bf16, tuned.gemm_tiles_bf16);
  EXPECT_EQ(read.gemm_tiles_f32, tuned.gemm_tiles_f32);

  const std::string good = read_file(file);
  const auto with = [&](const char* key, const json& value) {
    json changed = json::parse(good);
    changed[key] = value;
    return changed.dump();
  };
  for (const std::string& bad :
       {good.substr(0, 20), std::string("[]"), with("cpu", "another"), with("gemm", "another"),
        with("format", 2), with("bf16", {{"b_ahead", {1}}}), with("f32", nullptr),
        with("bf16", {{"b_ahead", {48, 99999}}, {"b_staged", {0, 0}}})}) {
    write_file(file, bad);
    kernels::KernelSet own = select();
    EXPECT_THAT(kernels::load_tuned_tiles(environment, own), HasSubstr("is not used")) << bad;
    EXPECT_EQ(own.gemm_tiles_bf16, kernels::GemmTiles{}) << bad;
    EXPECT_EQ(own.gemm_tiles_f32, kernels::GemmTiles{}) << bad;
  }
  EXPECT_FALSE(kernels::tuned_tiles_file(Environment()).has_value());
}

// On a busy machine nothing is written; a later run uses what is.
TEST(BenchProgram, TuningWritesTilesOrStatesWhyNot) {
  testing::TemporaryFolder folder;
  const fs::path programs = fs::path(TANDEM_BINARY_DIR) / "bin";
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--model", "minilm", "--batch", "1", "--seq", "64", "--dtype",
                               "bf16", "--rounds", "1"});
    return testing::run(words,
                        {{"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", folder.path().string()}});
  };
  const auto done = run({(programs / "kernel_bench").string(), "tune"});
  const fs::path file =
      kernels::tuned_tiles_file(Environment({{"XDG_CACHE_HOME", folder.path().string()}})).value();
  EXPECT_THAT(done.out, HasSubstr("dW, tiles of at most 384 x 768"));
  if (done.exit_code == 0) {
    EXPECT_THAT(done.out, HasSubstr("written to " + file.string()));
    const auto gemm =
        run({(programs / "kernel_bench").string(), "gemm", "--only", "up 1536x384 forward"});
    EXPECT_THAT(gemm.out, HasSubstr(file.string()));
  } else {
    EXPECT_EQ(done.exit_code, 1) << done.err;
    EXPECT_THAT(done.out, HasSubstr("nothing is written"));
    EXPECT_FALSE(fs::exists(file));
  }
}

TEST(BenchProgram, Peak) {
  const json results = results_of({"peak", "--megabytes", "16"});
  for (const json& result : results) {
    EXPECT_GT(result["rate"]["median"].get<double>(), 0) << result;
    EXPECT_FALSE(result["unit"].get<std::string>().empty());
  }
}

// Layer 0 reads the whole text, layer 1 a window. The small vocabulary of the check is below the
// padding id.
TEST(BenchProgram, AStageCountsTheProductsOfItsLayers) {
  testing::TemporaryFolder folder;
  write_file(folder / "config.json",
             R"({"model_type": "modernbert", "vocab_size": 1200, "pad_token_id": 1100,
                 "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2,
                 "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "intermediate_size": 48, "max_position_embeddings": 64, "local_attention": 16,
                 "global_attn_every_n_layers": 2})");
  const json results =
      results_of({"step", "--model", folder.path().string(), "--batch", "1", "--seq", "64"});
  ASSERT_EQ(results.size(), 1u);
  expect_verified_and_timed(results[0]);
  const double pairs = kernels::attention_pairs(64, 64) +
                       kernels::attention_pairs(64, 64, kernels::Window::around(8));
  const std::map<std::string, double> expected = {{"attention forward", 4 * 32 * pairs},
                                                  {"attention backward", 8 * 32 * pairs},
                                                  {"up dW", 2 * 2 * 64 * 32 * 96},
                                                  {"down forward", 2 * 2 * 64 * 32 * 48}};
  std::size_t found = 0;
  for (const json& stage : results[0]["breakdown"]) {
    const auto flops = expected.find(stage["stage"].get<std::string>());
    if (flops == expected.end()) continue;
    ++found;
    EXPECT_NEAR(stage["gflops_per_second"].get<double>() * 1e9 * stage["seconds"].get<double>(),
                flops->second, 1e-6 * flops->second)
        << stage;
  }
  EXPECT_EQ(found, expected.size());
}

TEST(BenchProgram, TheStagesOfAStepAddUp) {
  testing::TemporaryFolder folder;
  write_file(folder / "config.json",
             R"({"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
                 "num_attention_heads": 2, "intermediate_size": 64,
                 "max_position_embeddings": 64})");
  const std::pair<const char*, const char*> cases[] = {
      {"f32", "question-answering"},  {"bf16", "question-answering"},
      {"f32", "text-classification"}, {"bf16", "token-classification"},
      {"f32", "fill-mask"},           {"bf16", "fill-mask"}};
  for (const auto& [dtype, task] : cases) {
    const json results =
        results_of({"step", "--model", folder.path().string(), "--batch", "3", "--seq", "64",
                    "--lengths", "squad", "--dtype", dtype, "--task", task});
    ASSERT_EQ(results.size(), 1u);
    const json& step = results[0];
    expect_verified_and_timed(step);
    EXPECT_EQ(step["dtype"], dtype);
    EXPECT_EQ(step["sequence_lengths"], json({62, 64, 64})) << "the rivals get the same";
    double sum = 0;
    for (const json& stage : step["breakdown"]) {
      EXPECT_GE(stage["seconds"].get<double>(), 0) << stage;
      sum += stage["seconds"].get<double>();
    }
    EXPECT_EQ(step["breakdown"].back()["stage"], "rest");
    EXPECT_NEAR(sum, step["breakdown_of_seconds"].get<double>(), 1e-9);
  }
}

TEST(BenchProgram, Tokenize) {
  const fs::path demo = fs::path(TANDEM_SOURCE_DIR) / "examples" / "demo";
  const json results = results_of(
      {"tokenize", "--model", (demo / "model").string(), (demo / "held_out.json").string()});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0]["unit"], "MB/s");
  EXPECT_GT(results[0]["texts_per_second"].get<double>(), 0);
}

TEST(BenchProgram, Answers) {
  const fs::path demo = fs::path(TANDEM_SOURCE_DIR) / "examples" / "demo";
  for (const char* version : {"--version_2_with_negative=false", "--version_2_with_negative"}) {
    const json results = results_of({"answers", "--model", (demo / "model").string(), version,
                                     (demo / "held_out.json").string()});
    ASSERT_EQ(results.size(), 3u);
    for (const json& result : results) EXPECT_TRUE(result["verified"].get<bool>()) << result;
  }
}

}  // namespace
}  // namespace tandem::apps::bench
