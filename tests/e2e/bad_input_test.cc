// Bad input and a failing world, through the program: the message names the culprit, the exit code
// is right, nothing is half-written.
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>

#include "e2e/job.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class BadInput : public JobTest {
 protected:
  void write(const fs::path& file, const std::string& content) const {
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
  }
  // A copy of the demo model with one file changed (or removed when `content` is empty).
  fs::path model_with(const std::string& file,
                      const std::function<std::string(std::string)>& change) const {
    const fs::path copy = path("model");
    fs::remove_all(copy);
    fs::copy(kDemo / "model", copy, fs::copy_options::recursive);
    const std::string changed = change(read_file(copy / file));
    fs::remove(copy / file);
    if (changed != kRemove) write(copy / file, changed);
    return copy;
  }
  // Runs the job with later flags winning, and expects the failure to leave no model behind.
  void expect_failure(const Words& more, int exit_code,
                      const std::vector<std::string>& needles) const {
    const ProcessResult result =
        testing::run(train_command("out", more), {{"OMP_NUM_THREADS", "1"}});
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    for (const std::string& needle : needles) EXPECT_THAT(result.err, HasSubstr(needle));
    EXPECT_FALSE(fs::exists(path("out") / "model.safetensors"));
    EXPECT_FALSE(fs::exists(path("out") / "trainer_state.json"));
  }
  void expect_model_failure(const std::string& file,
                            const std::function<std::string(std::string)>& change,
                            const std::vector<std::string>& needles) const {
    SCOPED_TRACE(file);
    const fs::path model = model_with(file, change);
    expect_failure({"--model_name_or_path", model.native()}, 1, needles);
  }
  // Two ranks of one job, each with a command of its own.
  // `of_one` are further variables of rank 1.
  static std::array<ProcessResult, 2> run_two(const Words& zero, const Words& one,
                                              const Variables& of_one = {}) {
    const int port = free_port();
    Variables variables = rank_variables(1, 2, port);
    variables.insert(of_one.begin(), of_one.end());
    Process first(zero, rank_variables(0, 2, port));
    Process second(one, variables);
    return {first.wait(), second.wait()};
  }
  void expect_data_failure(const std::string& content, const std::vector<std::string>& needles,
                           const Words& more = {}) const {
    SCOPED_TRACE(content.substr(0, 200));
    const fs::path file = path("data.json");
    write(file, content);
    Words words = {"--train_file", file.native()};
    words.insert(words.end(), more.begin(), more.end());
    expect_failure(words, 1, needles);
  }

  static inline const std::string kRemove = "\x01remove";
};

std::string with_header_size(std::string file, std::uint64_t size) {
  for (int i = 0; i < 8; ++i)
    file[static_cast<std::size_t>(i)] = static_cast<char>(size >> (8 * i));
  return file;
}

std::string record(const std::string& id, const std::string& question, const std::string& context,
                   const std::string& answer, int start) {
  return R"({"id": ")" + id + R"(", "question": ")" + question + R"(", "context": ")" + context +
         R"(", "answers": {"text": [")" + answer + R"("], "answer_start": [)" +
         std::to_string(start) + "]}}";
}

std::string dataset(const std::vector<std::string>& records) {
  std::string text = R"({"data": [)";
  for (const std::string& r : records) text += (text.back() == '[' ? "" : ", ") + r;
  return text + "]}";
}

TEST_F(BadInput, Safetensors) {
  expect_model_failure("model.safetensors", [](const auto&) { return kRemove; },
                       {"model.safetensors"});
  expect_model_failure("model.safetensors", [](const auto&) { return std::string(); },
                       {"model.safetensors"});
  expect_model_failure("model.safetensors", [](std::string s) { return s.substr(0, s.size() / 2); },
                       {"model.safetensors"});
  expect_model_failure("model.safetensors",
                       [](std::string s) { return with_header_size(s, std::uint64_t{1} << 40); },
                       {"model.safetensors", "header"});
  expect_model_failure("model.safetensors",
                       [](std::string s) { return s.replace(s.find("\"F32\""), 5, "\"I32\""); },
                       {"model.safetensors", "I32"});
}

TEST_F(BadInput, ConfigAndTokenizer) {
  expect_model_failure("config.json", [](const auto&) { return kRemove; }, {"config.json"});
  expect_model_failure("config.json", [](std::string s) { return s.substr(0, 40); },
                       {"config.json"});
  expect_model_failure("config.json",
                       [](std::string s) {
                         const auto at = s.find("\"intermediate_size\": ");
                         return s.replace(at, s.find(',', at) - at, "\"intermediate_size\": 48");
                       },
                       {"intermediate", "48", "config"});
  expect_model_failure("config.json",
                       [](std::string s) { return s.replace(s.find("\"bert\""), 6, "\"gpt2\""); },
                       {"gpt2", "distilbert"});
  // Without tokenizer.json the vocabulary is vocab.txt.
  const fs::path model = model_with("tokenizer.json", [](const auto&) { return kRemove; });
  std::string vocabulary = read_file(model / "vocab.txt");
  write(model / "vocab.txt", vocabulary.replace(vocabulary.find("[SEP]"), 5, "[XYZ]"));
  expect_failure({"--model_name_or_path", model.native()}, 1, {"[SEP]", "vocab.txt"});
}

TEST_F(BadInput, Data) {
  const std::string good = record("q1", "Where is it?", "It is in the old harbour.", "harbour", 17);
  expect_data_failure(dataset({good}).substr(0, 70), {"data.json"});
  expect_data_failure("", {"data.json"});
  expect_data_failure(dataset({record("q1", "Where?", "It is here.", "here", 500)}),
                      {"data.json", "q1", "500"});
  expect_data_failure(dataset({record("q1", "Where?", "", "", 0)}), {"q1", "context"});
  expect_data_failure(dataset({record("q1", "Wh\xff?", "It is here.", "here", 6)}),
                      {"data.json", "UTF-8"});
  expect_data_failure(
      dataset(
          {R"({"id": "q1", "question": 7, "context": "c", "answers": {"text": ["c"], "answer_start": [0]}})"}),
      {"q1", "question"});
  std::string long_question;
  for (int i = 0; i < 120; ++i) long_question += "where ";
  expect_data_failure(dataset({record("q1", long_question, "It is here.", "here", 6)}),
                      {"q1", "question"});
  expect_failure({"--max_seq_length", "24", "--doc_stride", "23"}, 1, {"stride", "23"});
  expect_failure({"--train_file", path("absent.json").native()}, 1, {"absent.json"});
}

TEST_F(BadInput, UnanswerableValidationDataAreRefusedBeforeTraining) {
  const fs::path file = path("validation.json");
  write(file, dataset({record("q1", "Where is it?", "It is in the old harbour.", "harbour", 17),
                       R"({"id": "q2", "question": "Who?", "context": "It is here.",)"
                       R"( "answers": {"text": [], "answer_start": []}})"}));
  const Words flags = {"--do_eval", "--validation_file", file.native()};
  expect_failure(flags, 1, {"question 'q2' has no answer", "--version_2_with_negative"});
  run_ok(train_command("v2", with(flags, {"--version_2_with_negative", "--max_steps", "1"})));
}

TEST_F(BadInput, Flags) {
  expect_failure({"--lerning_rate", "1e-3"}, 2, {"--lerning_rate", "--learning_rate"});
  expect_failure({"--learning_rate", "fast"}, 2, {"--learning_rate", "fast"});
  expect_failure({"--fp16"}, 1, {"--bf16"});
  const ProcessResult result = testing::run({kProgram, "run_qa", "--do_train"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--model_name_or_path"));
}

TEST_F(BadInput, OutputDirectory) {
  write(path("file"), "not a directory");
  expect_failure({"--output_dir", path("file").native()}, 1, {path("file").native()});
  write(path("out") / "precious.txt", "kept");
  expect_failure({}, 1, {"already exists and is not empty", "--overwrite_output_dir"});
  EXPECT_EQ(read_file(path("out") / "precious.txt"), "kept");
}

// Not in the middle of the first step: before the data is read.
TEST_F(BadInput, RanksWithOtherFlagsLearnWhichOnes) {
  const auto results = run_two(train_command("out", {"--per_device_train_batch_size", "4"}),
                               train_command("out", {"--per_device_train_batch_size", "8"}));
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("per_device_train_batch_size: 4 on rank 0 (host "),
                                  HasSubstr("8 on rank 1 (host "), Not(HasSubstr("adam_beta1"))));
  }
}

TEST_F(BadInput, RanksWithOtherFilesAreReportedBeforeTheFirstStep) {
  const auto files_of = [&](const std::string& rank) {
    fs::remove_all(path(rank));
    fs::create_directories(path(rank));
    fs::copy(kDemo / "model", path(rank) / "model", fs::copy_options::recursive);
    fs::copy(kDemo / "held_out.json", path(rank) / "held_out.json");
    return path(rank);
  };
  const auto expect_disagreement = [&](const fs::path& changed, const std::string& from,
                                       const std::string& to, const std::string& needle) {
    SCOPED_TRACE(changed);
    const fs::path zero = files_of("zero");
    const fs::path one = files_of("one");
    std::string text = read_file(one / changed);
    const std::size_t position = text.find(from);
    ASSERT_NE(position, std::string::npos);
    write(one / changed, text.replace(position, from.size(), to));
    const auto in = [&](const fs::path& folder) {
      Words command = {"env", "-C", folder.native()};
      for (const std::string& word :
           train_command("out", {"--model_name_or_path", "model", "--do_eval", "--validation_file",
                                 "held_out.json", "--max_eval_samples", "5"}))
        command.push_back(word);
      return command;
    };
    for (const ProcessResult& result : run_two(in(zero), in(one))) {
      EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
      EXPECT_THAT(result.err, AllOf(HasSubstr("the ranks disagree on the inputs"),
                                    HasSubstr(needle), HasSubstr("on rank 1 (host ")));
    }
    EXPECT_FALSE(fs::exists(path("out") / "model.safetensors"));
  };
  const std::string config = read_file(kDemo / "model" / "config.json");
  EXPECT_THAT(config, HasSubstr("\"layer_norm_eps\": 1e-12"));
  expect_disagreement("model/config.json", "\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": 1e-05",
                      "config.json layer_norm_eps: 1e-12 on rank 0");
  expect_disagreement("held_out.json", "\"question\": \"", "\"question\": \"so ",
                      "validation data: ");
}

// Two builds of one version may compute differently.
TEST_F(BadInput, RanksOfAnotherProgramAreReportedBeforeTheFirstStep) {
  const Words zero = train_command("out");
  Words one = zero;
  one[0] = path("tandem").native();
  fs::copy_file(kProgram, one[0]);
  std::ofstream(one[0], std::ios::binary | std::ios::app) << "x";
  for (const ProcessResult& result : run_two(zero, one)) {
    EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("the ranks disagree on the inputs"),
                                  HasSubstr("program: tandem "), HasSubstr("on rank 1 (host ")));
  }
  EXPECT_FALSE(fs::exists(path("out") / "model.safetensors"));
}

// Settings of communication: the transport of the sums, and the order of additions.
TEST_F(BadInput, RanksThatWouldCommunicateDifferentlyAreReportedWhenTheyMeet) {
  const std::pair<Variables, std::string> cases[] = {
      {{{"CCL_ALLREDUCE", "ring"}}, "algorithms (CCL_ALLREDUCE …): (empty) on rank 0"},
      {{{"TANDEM_KERNELS", "layer_norm=reference"}},
       "(TANDEM_KERNELS); start all ranks with the same settings and files:\n  layer_norm: "}};
  for (const auto& [variables, needle] : cases) {
    const Words command = train_command("out");
    for (const ProcessResult& result : run_two(command, command, variables)) {
      EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
      EXPECT_THAT(result.err, AllOf(HasSubstr("the ranks disagree on the "), HasSubstr(needle),
                                    HasSubstr("on rank 1 (host "), Not(HasSubstr("gemm"))));
    }
  }
}

TEST_F(BadInput, KernelsThatCannotRunTheJob) {
  const auto error_of = [&](const std::string& features, const std::string& kernels) {
    const ProcessResult result = testing::run(
        train_command("out", {"--bf16", "true"}),
        {{"OMP_NUM_THREADS", "1"}, {"TANDEM_CPU_FEATURES", features}, {"TANDEM_KERNELS", kernels}});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.out + result.err, ::testing::Not(HasSubstr("features")));
    EXPECT_FALSE(fs::exists(path("out") / "model.safetensors"));
    return result.err;
  };
  EXPECT_THAT(
      error_of("none", "gemm=onednn"),
      HasSubstr("TANDEM_KERNELS asks for gemm=onednn, but oneDNN has no bf16 products for a "
                "CPU without AVX-512"));
  EXPECT_THAT(error_of("none", "gemm=avx2"),
              HasSubstr("TANDEM_KERNELS asks for gemm=avx2, but this CPU has no AVX2"));
  EXPECT_THAT(error_of("sse9", ""),
              HasSubstr("TANDEM_CPU_FEATURES: there is no feature 'sse9'; there are none, avx2"));
}

// The message has the name of the output, not that of the file that becomes it.
TEST_F(BadInput, DiskFullDuringEmbeddings) {
  const fs::path disk = path("disk");
  fs::create_directories(disk);
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += fmt::format("Ship {} sails.\n", i);
  const std::string texts = file("texts.txt", lines);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  const std::string output = (disk / "x.npy").native();
  const ProcessResult result =
      testing::run({kProgram, "embed", "--model", (kDemo / "model").native(), "--file", texts,
                    "--output", output},
                   {{"OMP_NUM_THREADS", "1"}});
  ::umount(disk.c_str());
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("cannot write '" + output + "': No space left on device; make room there"));
}

TEST_F(BadInput, DiskFullDuringACheckpoint) {
  const fs::path disk = path("out");
  fs::create_directories(disk);
  // Room for one checkpoint of the demo model, not for two.
  const auto model_size = fs::file_size(kDemo / "model" / "model.safetensors");
  const std::string options = "size=" + std::to_string(model_size * 45 / 10);
  if (::mount("none", disk.c_str(), "tmpfs", 0, options.c_str()) != 0)
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  const ProcessResult result =
      testing::run(train_command("out", {"--save_steps", "3", "--overwrite_output_dir"}),
                   {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("No space left on device"));
  EXPECT_TRUE(fs::exists(disk / "checkpoint-3" / "optimizer.pt"));
  EXPECT_FALSE(fs::exists(disk / "checkpoint-6"));
  EXPECT_FALSE(fs::exists(disk / "tmp-checkpoint-6"));
  // The older checkpoint is whole: a run that keeps only one resumes from it.
  const ProcessResult resumed =
      testing::run(train_command("out", {"--save_strategy", "no", "--max_steps", "5"}),
                   {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

// Libraries mark their messages; people need the reason alone. A number that no double holds is not
// an error of syntax to them, and has a mark of its own.
TEST_F(BadInput, NoParsersMarkReachesPeople) {
  const std::string train = (kDemo / "train.json").native();
  const auto words = [&](const std::string& command, const fs::path& model,
                         const std::string& file) {
    return Words{kProgram,       command, "--model_name_or_path", model.native(),      "--do_train",
                 "--train_file", file,    "--output_dir",         path("out").native()};
  };
  const auto expect_reason = [](const Words& command, const std::string& reason) {
    SCOPED_TRACE(command[1] + " " + reason);
    const ProcessResult result = run(command, {});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr(reason), Not(HasSubstr("json.exception")),
                                  Not(HasSubstr("internal error"))));
  };
  const std::string large = R"({"model_name_or_path": 1e999})";
  for (const auto& [text, reason] : {std::pair<std::string, std::string>{"{]", "line 1, column 2"},
                                     {large, "number overflow parsing '1e999'"}}) {
    for (const char* file :
         {"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
      SCOPED_TRACE(file);
      const fs::path model = model_with("config.json", std::identity());
      write(model / file, text);
      expect_reason(words("run_qa", model, train), reason);
    }
    write(path("arguments.json"), text);
    expect_reason({kProgram, "run_qa", path("arguments.json").native()}, reason);
    for (const char* command : {"run_qa", "run_glue", "run_ner"}) {
      for (const char* file : {"data.json", "data.jsonl"}) {
        SCOPED_TRACE(file);
        write(path(file), text);
        // A value that no task reads may hold anything: there the missing fields are the reason.
        expect_reason(words(command, kDemo / "model", path(file).native()),
                      text == large ? "found" : reason);
      }
    }
  }
}

// A set without samples is refused before a file is written, by every task alike.
TEST_F(BadInput, EvaluationsWithoutSamples) {
  const auto files = [&] {
    std::vector<std::string> names;
    if (!fs::exists(path("out"))) return names;
    for (const auto& entry : fs::directory_iterator(path("out"))) {
      if (entry.path().filename().native().front() != '.') names.push_back(entry.path().filename());
    }
    return names;
  };
  for (const char* command : {"run_qa", "run_ner", "run_glue", "run_classification"}) {
    SCOPED_TRACE(command);
    use(demo_task(command));
    const std::string file = eval_flags()[2];
    expect_failure({"--do_eval", "--validation_file", file, "--max_eval_samples", "0"}, 1,
                   {"no evaluation samples: --max_eval_samples is 0 or --validation_file has no "
                    "examples"});
    EXPECT_THAT(files(), ::testing::IsEmpty());
    expect_failure({"--do_predict", "--test_file", file, "--max_predict_samples", "0"}, 1,
                   {"no prediction samples: --max_predict_samples is 0 or --test_file has no "
                    "examples"});
    EXPECT_THAT(files(), ::testing::IsEmpty());
  }
}

// Labels of the tasks that classify, each as a person meets them.
TEST_F(BadInput, LabelsAndTags) {
  const auto run_task = [&](const std::string& command, const std::string& train,
                            const std::string& validation, const std::string& type,
                            const std::string& needle) {
    SCOPED_TRACE(needle);
    write(path("train." + type), train);
    write(path("validation." + type), validation);
    const ProcessResult result =
        run({kProgram, command, "--model_name_or_path", (kDemo / "model").native(), "--do_train",
             "--do_eval", "--max_steps", "1", "--max_seq_length", "32", "--output_dir",
             path("labels").native(), "--train_file", path("train." + type).native(),
             "--validation_file", path("validation." + type).native()},
            {{"OMP_NUM_THREADS", "1"}});
    EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(needle));
    EXPECT_FALSE(fs::exists(path("labels") / "model.safetensors"));
  };
  const std::string good = "sentence,label\ngood,0\nbad,1\nfine,0\n";
  run_task("run_glue", good, "sentence,label\ngood,0\nbad,7\n", "csv",
           "row 2 (line 3): the label '7' is not known; expected one of 0, 1");
  run_task("run_glue", "sentence,lable\ngood,0\n", good, "csv",
           "there is no column \"label\", found \"sentence\" (texts), \"lable\" (numbers)");
  run_task("run_glue", good, "sentence,label\nx,0.5\n", "csv",
           "the label 0.5 is a number, but a class is needed: 0, 1");
  run_task("run_glue", "sentence,label\ngood,0\nbad,\n", good, "csv",
           "row 2 (line 3): the label is missing");
  run_task("run_glue",
           R"({"sentence": "good", "label": "a"})"
           "\n"
           R"({"sentence": "bad"})",
           R"({"sentence": "good", "label": "a"})", "json", "row 2 (line 2): the label is missing");
  run_task("run_classification", "", good, "csv", "the file is empty");
  run_task("run_classification", good, "sentence,label\n", "csv", "the file has no row in it");
  const std::string tagged = R"({"tokens": ["a", "b"], "ner_tags": ["O", "B-x"]})"
                             "\n";
  run_task("run_ner", tagged + R"({"tokens": ["a"], "ner_tags": ["O", "B-x"]})", tagged, "json",
           "row 2 (line 2): 1 words in \"tokens\" and 2 tags");
  run_task("run_ner", tagged, R"({"tokens": ["a"], "ner_tags": ["B-z"]})", "json",
           "word 0 ('a') has the tag 'B-z', which the model does not have; expected one of B-x, O");
  run_task("run_ner", R"({"tokens": ["a"], "ner_tags": ["O"]})", tagged, "json",
           "row 1 (line 1): 'O' is the only tag in the training data");
}

}  // namespace
}  // namespace tandem::testing
