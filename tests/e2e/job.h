// The demo job as tests run it: the shipped small model and questions, a few steps, a folder of its
// own.
#pragma once

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/decoder_tokenizer.h"
#include "support/process.h"
#include "support/reference_job.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/trainer/trainer_state.h"

namespace tandem::testing {

inline const std::filesystem::path kDemo =
    std::filesystem::path(TANDEM_SOURCE_DIR) / "examples" / "demo";
inline const std::string kProgram =
    (std::filesystem::path(TANDEM_BINARY_DIR) / "bin" / "tandem").native();
// The test build, which can claim to run on another processor: TANDEM_EMULATED_CPU.
inline const std::string kEmulatedProgram = kProgram + "_emulated";

class JobTest : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;
  using Variables = std::map<std::string, std::string>;

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }

  // The parts of a test's jobs: the command, the flags that name its data and features, those of an
  // evaluation, and the files that this leaves.
  struct DemoTask {
    std::string command;
    Words train_flags, eval_flags;
    std::vector<std::string> result_files;
  };
  static DemoTask question_answering() {
    return {"run_qa",
            {"--train_file", (kDemo / "train.json").native(), "--max_seq_length", "128",
             "--doc_stride", "32"},
            {"--do_eval", "--validation_file", (kDemo / "held_out.json").native(),
             "--max_eval_samples", "30"},
            {"eval_nbest_predictions.json", "eval_predictions.json"}};
  }
  // The sentences of the golden twice, 56 rows, each written by `row`.
  template <class Row>
  std::string rows_file(const std::string& name, Row row) const {
    const std::string file = path(name).native();
    if (std::filesystem::exists(file)) return file;
    const auto golden = nlohmann::json::parse(
        read_file(std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/ner.json"));
    std::string rows;
    for (const auto& sentence : golden.at("rows"))
      rows += nlohmann::ordered_json(row(sentence)).dump() + "\n";
    write_file(file, rows + rows);
    return file;
  }
  static DemoTask task_of(const std::string& command, const std::string& file,
                          const std::string& predictions) {
    return {command,
            {"--train_file", file, "--max_seq_length", "64"},
            {"--do_eval", "--validation_file", file, "--do_predict", "--test_file", file},
            {predictions}};
  }
  DemoTask token_classification() const {
    return task_of("run_ner",
                   rows_file("ner_rows.json",
                             [](const nlohmann::json& sentence) {
                               return nlohmann::json{{"tokens", sentence.at("tokens")},
                                                     {"ner_tags", sentence.at("ner_tags")}};
                             }),
                   "predictions.txt");
  }
  // Pairs of a sentence's halves; the class is how many of its words have a tag, up to two.
  DemoTask pair_classification() const {
    return task_of(
        "run_glue",
        rows_file(
            "pair_rows.json",
            [](const nlohmann::json& sentence) {
              const auto words = words_of(sentence, "tokens");
              const std::size_t half = words.size() / 2;
              std::size_t tagged = 0;
              for (const std::string& tag : words_of(sentence, "ner_tags")) tagged += tag != "O";
              return nlohmann::json{
                  {"sentence1",
                   fmt::format("{}",
                               fmt::join(words.begin(),
                                         words.begin() + static_cast<std::ptrdiff_t>(half), " "))},
                  {"sentence2",
                   fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(half),
                                               words.end(), " "))},
                  {"label", std::min<std::size_t>(tagged, 2)}};
            }),
        "predict_results_None.txt");
  }
  // Pairs of a sentence's halves without a label: each half is the positive of the other one.
  DemoTask embedding() const {
    const std::string file = rows_file("halves.json", [](const nlohmann::json& sentence) {
      const auto words = words_of(sentence, "tokens");
      const auto half = words.begin() + static_cast<std::ptrdiff_t>(words.size() / 2);
      return nlohmann::json{{"anchor", fmt::format("{}", fmt::join(words.begin(), half, " "))},
                            {"positive", fmt::format("{}", fmt::join(half, words.end(), " "))}};
    });
    return {"run_embedding",
            {"--train_file", file, "--max_seq_length", "64"},
            {"--do_eval", "--validation_file", file},
            {}};
  }
  // The sentences, each a piece of its own.
  DemoTask masked_language() const {
    return {"run_mlm",
            {"--train_file", texts(), "--max_seq_length", "64", "--line_by_line"},
            {"--do_eval", "--validation_file", texts()},
            {}};
  }
  // A small decoder, drawn from the seed.
  std::string decoder() const {
    return drawn_decoder("decoder",
                         "hidden_size=32,num_attention_heads=4,num_key_value_heads=2,"
                         "num_hidden_layers=2,intermediate_size=48");
  }
  // One of the name and size, `sizes` as in --config_overrides.
  std::string drawn_decoder(const std::string& name, const std::string& sizes) const {
    if (std::filesystem::exists(path(name))) return path(name).native();
    const std::filesystem::path tokenizer = path("decoder_tokenizer");
    if (std::filesystem::create_directory(tokenizer))
      write_decoder_tokenizer(tokenizer, kChatTemplate);
    run_ok({kProgram,
            "run_clm",
            "--model_type",
            "llama",
            "--config_overrides",
            sizes + ",vocab_size=432,max_position_embeddings=128",
            "--tokenizer_name",
            tokenizer.native(),
            "--output_dir",
            path(name).native(),
            "--train_file",
            texts(),
            "--validation_split_percentage",
            "0",
            "--block_size",
            "16",
            "--do_train",
            "--max_steps",
            "1",
            "--save_strategy",
            "no"});
    return path(name).native();
  }
  static constexpr const char* kChatTemplate =
      "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + "
      "eos_token + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif "
      "%}";
  std::string texts() const {
    return rows_file("texts.json", [](const nlohmann::json& sentence) {
      return nlohmann::json{
          {"text", fmt::format("{}", fmt::join(words_of(sentence, "tokens"), " "))}};
    });
  }
  DemoTask causal_language() const {
    return {"run_clm",
            {"--model_name_or_path", decoder(), "--train_file", texts(), "--block_size", "32"},
            {"--do_eval", "--validation_file", texts()},
            {}};
  }
  // The first half of a sentence is the prompt, the other one its completion.
  DemoTask supervised() const {
    const std::string file = rows_file("prompts.json", [](const nlohmann::json& sentence) {
      const auto words = words_of(sentence, "tokens");
      const auto half = words.begin() + static_cast<std::ptrdiff_t>(words.size() / 2);
      return nlohmann::json{{"prompt", fmt::format("{} ", fmt::join(words.begin(), half, " "))},
                            {"completion", fmt::format("{}", fmt::join(half, words.end(), " "))}};
    });
    return {"run_sft",
            {"--model_name_or_path", decoder(), "--train_file", file, "--max_length", "64"},
            {"--do_eval", "--validation_file", file},
            {}};
  }
  // Sentences with the tags that are in them.
  DemoTask multi_label_classification() const {
    return task_of(
        "run_classification",
        rows_file("label_rows.json",
                  [](const nlohmann::json& sentence) {
                    std::set<std::string> labels;
                    for (const std::string& tag : words_of(sentence, "ner_tags"))
                      if (tag != "O") labels.insert(tag);
                    return nlohmann::json{
                        {"sentence",
                         fmt::format("{}", fmt::join(words_of(sentence, "tokens"), " "))},
                        {"label", labels}};
                  }),
        "predict_results.txt");
  }
  // A sentence's first word as the query; the others in passages of up to three words, whose label
  // is how many of them have a tag.
  DemoTask ranked_lists() const {
    DemoTask task = task_of("run_reranker",
                            rows_file("ranked_rows.json",
                                      [](const nlohmann::json& sentence) {
                                        const auto words = words_of(sentence, "tokens");
                                        const auto tags = words_of(sentence, "ner_tags");
                                        nlohmann::ordered_json row = {{"query", words.front()}};
                                        for (std::size_t i = 0; i < words.size(); ++i) {
                                          if (i % 3 == 0) {
                                            row["docs"].push_back("");
                                            row["labels"].push_back(0);
                                          }
                                          const std::string before = row["docs"].back();
                                          row["docs"].back() = before + " " + words[i];
                                          row["labels"].back() =
                                              row["labels"].back().get<int>() + (tags[i] != "O");
                                        }
                                        return row;
                                      }),
                            "predict_results.txt");
    task.train_flags.insert(task.train_flags.end(), {"--loss", "LambdaLoss"});
    task.eval_flags.insert(task.eval_flags.end(), {"--evaluator", "reranking"});
    return task;
  }
  static std::vector<std::string> words_of(const nlohmann::json& sentence, const char* key) {
    return sentence.at(key).get<std::vector<std::string>>();
  }
  // By the command.
  DemoTask demo_task(std::string_view command) const {
    if (command == "run_ner") return token_classification();
    if (command == "run_glue") return pair_classification();
    if (command == "run_reranker") return ranked_lists();
    if (command == "run_classification") return multi_label_classification();
    if (command == "run_embedding") return embedding();
    if (command == "run_mlm") return masked_language();
    if (command == "run_clm") return causal_language();
    if (command == "run_sft") return supervised();
    return question_answering();
  }
  void use(DemoTask task) { task_ = std::move(task); }
  // Commands begin with this program instead of kProgram.
  void use_program(const std::string& program) { program_ = program; }
  const std::string& program() const { return program_; }

  // 40 features in batches of 4: 10 batches an epoch, 5 updates with two shards; 12 steps end in
  // the third epoch.
  Words train_command(const std::string& output, const Words& more = {}) const {
    Words words = {program_,
                   task_.command,
                   "--model_name_or_path",
                   (kDemo / "model").native(),
                   "--output_dir",
                   path(output).native(),
                   "--do_train",
                   "--max_train_samples",
                   "40",
                   "--per_device_train_batch_size",
                   "4",
                   "--max_steps",
                   "12",
                   "--learning_rate",
                   "1e-3",
                   "--logging_steps",
                   "4",
                   "--save_steps",
                   "7"};
    return with(with(std::move(words), task_.train_flags), more);
  }
  Words eval_flags() const { return task_.eval_flags; }

  // Variables of rank `rank` of `size` started by hand.
  static Variables rank_variables(int rank, int size, int port, int threads = 1) {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(size)},
            {"LOCAL_RANK", std::to_string(rank)},
            {"LOCAL_WORLD_SIZE", std::to_string(size)},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(port)},
            {"OMP_NUM_THREADS", std::to_string(threads)}};
  }

  // As testing::run, with the texts unwrapped.
  static ProcessResult run(const Words& command, const Variables& variables = {},
                           std::chrono::seconds limit = std::chrono::seconds(120)) {
    ProcessResult result = testing::run(command, variables, limit);
    result.out = unwrapped(result.out);
    result.err = unwrapped(result.err);
    return result;
  }

  static ProcessResult run_ok(const Words& command,
                              const Variables& variables = {{"OMP_NUM_THREADS", "1"}}) {
    ProcessResult result = run(command, variables);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result;
  }

  // As run_ok, of a job with whose results in path(output) those of others are compared: it is run
  // once for all tests.
  ProcessResult run_reference(const Words& command, const std::string& output,
                              const Variables& variables = {{"OMP_NUM_THREADS", "1"}}) const {
    ReferenceJob job = reference_job(command, path(output).native(), variables);
    std::filesystem::create_directory_symlink(job.folder, path(output));
    return std::move(job.result);
  }

  // The demo job that `launcher` starts: its words end with the job's command.
  ProcessResult train_under(const Words& launcher, const std::string& output) const {
    const Words alone = train_command(output);
    return run_ok(with(launcher, Words(alone.begin() + 2, alone.end())));
  }

  // All ranks of a job by hand; every one must end well.
  // `last` are further variables of the last rank, `all` of every rank.
  static void run_ranks(const Words& command, int size, int threads = 1, const Variables& last = {},
                        const Variables& all = {}) {
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < size; ++rank) {
      Variables variables = rank_variables(rank, size, port, threads);
      if (rank + 1 == size) variables.insert(last.begin(), last.end());
      variables.insert(all.begin(), all.end());  // what is there already stays
      ranks.push_back(std::make_unique<Process>(command, variables));
    }
    for (auto& rank : ranks) {
      const ProcessResult result = rank->wait();
      EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    }
  }

  std::string file(const std::string& name, const std::string& content) const {
    write_file(path(name), content);
    return path(name).native();
  }
  nlohmann::json results(const std::string& output) const {
    return nlohmann::json::parse(read_file(path(output) / "all_results.json"));
  }
  // Both streams of a job, with the blanks between columns as one.
  static std::string output_of(const ProcessResult& result) {
    std::string text = result.out + result.err;
    text.erase(
        std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
        text.end());
    return text;
  }
  static void expect_refused(const Words& command, const std::vector<std::string>& parts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(command, " ")));
    const ProcessResult result = run(command);
    EXPECT_NE(result.exit_code, 0) << result.out;
    for (const std::string& part : parts)
      EXPECT_NE(output_of(result).find(part), std::string::npos) << part << output_of(result);
  }

  std::string weights(const std::string& output) const {
    return read_file(path(output) / "model.safetensors");
  }

  void expect_equal_results(const std::string& a, const std::string& b) const {
    EXPECT_TRUE(weights(a) == weights(b)) << "the weights of " << a << " and " << b << " differ";
    EXPECT_EQ(log_history(a), log_history(b));
    for (const std::string& file : task_.result_files) {
      const auto left = read_file_if_exists(path(a) / file);
      const auto right = read_file_if_exists(path(b) / file);
      EXPECT_TRUE(left == right) << file;  // they may be large: no line-by-line difference
    }
  }
  // Losses, norms and learning rates; without the last entry, which holds times.
  std::string log_history(const std::string& output) const {
    auto state =
        trainer::TrainerState::parse(read_file(path(output) / "trainer_state.json"), output);
    std::string text;
    for (const auto& entry : state.log_history) {
      if (entry.contains("loss")) text += entry.dump() + "\n";
    }
    EXPECT_FALSE(text.empty());
    return text;
  }
  // The losses of the log, in its order.
  std::vector<double> losses(const std::string& output) const {
    const auto state =
        trainer::TrainerState::parse(read_file(path(output) / "trainer_state.json"), output);
    std::vector<double> values;
    for (const auto& entry : state.log_history) {
      if (entry.contains("loss")) values.push_back(entry.at("loss").get<double>());
    }
    return values;
  }
  // SIGTERM outside of training, while `process` does what takes longer than 20 s. Two things end
  // it: loops look whether they should, and StopSignals' thread ends what does not look. Where the
  // test's work does both (an evaluation, quantization), it fails without both only; a file that
  // does not end and a download show the thread alone.
  static void expect_to_end_at_once(Process& process) {
    process.signal(SIGTERM);
    const auto asked = std::chrono::steady_clock::now();
    const ProcessResult ended = process.wait(std::chrono::seconds(20));
    const std::chrono::duration<double> delay = std::chrono::steady_clock::now() - asked;
    EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.out << ended.err;
    EXPECT_LT(delay.count(), 5) << "the promise is a second, on a machine with nothing else to do";
    EXPECT_NE(ended.err.find("stopped by SIGTERM"), std::string::npos) << ended.err;
  }
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

 private:
  TemporaryFolder folder_;
  DemoTask task_ = question_answering();
  std::string program_ = kProgram;
};

}  // namespace tandem::testing
