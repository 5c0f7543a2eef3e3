// Memory of a job: the printed plan holds, memory stays flat, --gradient_checkpointing changes no
// bit, and the time of its steps is reported.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "e2e/job.h"
#include "support/control_group.h"
#include "support/sanitizers.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

using ::testing::ContainsRegex;

class Memory : public JobTest {
 protected:
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Output of rank 0 of a job. `apart`: each rank is a node of its own.
  static std::string output_of(const Words& command, int size, bool apart = false) {
    if (size == 1) return run_ok(command).out;
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < size; ++rank) {
      Variables variables = rank_variables(rank, size, port);
      if (apart) variables["TANDEM_NODE_ID"] = std::to_string(rank);
      ranks.push_back(std::make_unique<Process>(command, variables));
    }
    std::string out;
    for (auto& rank : ranks) {
      const ProcessResult result = rank->wait();
      EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
      if (out.empty()) out = unwrapped(result.out);
    }
    return out;
  }

  // Output of the agent of a job with this many workers.
  std::string elastic_output(int workers, const Words& flags) const {
    Words command =
        train_command("job", with({"--overwrite_output_dir", "--save_strategy", "no"}, flags));
    command.erase(command.begin(), command.begin() + 2);
    const std::string count = std::to_string(workers);
    return unwrapped(
        run_ok(with({kProgram, "run", "--standalone", "--nproc-per-node", count, "run_qa.py"},
                    command))
            .out);
  }

  // Planned and used at the peak, in MiB.
  static std::pair<double, double> planned_and_used(const std::string& out) {
    static const std::regex kLine(R"(memory used on this node: (\d+) MiB, planned (\d+) )");
    std::smatch match;
    if (!std::regex_search(out, match, kLine)) {
      ADD_FAILURE() << "no line of memory in\n" << out;
      return {0, 0};
    }
    return {std::stod(match[2]), std::stod(match[1])};
  }
};

// The demo's model is so small that most of the peak is the program itself, a few MiB of which
// appear after the plan: hence a constant in addition to the promised 5 %.
TEST_F(Memory, ThePlanHolds) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  constexpr double kProgramMib = 5;
  const Words larger_batches = {"--max_train_samples",
                                "400",
                                "--per_device_train_batch_size",
                                "48",
                                "--max_steps",
                                "3",
                                "--overwrite_output_dir",
                                "--save_strategy",
                                "no"};
  for (const int ranks : {1, 2}) {
    for (const Words& flags :
         {Words{}, Words{"--bf16"}, Words{"--gradient_checkpointing"},
          Words{"--pad_to_max_length", "true"}, with({"--bf16"}, eval_flags()),
          with(eval_flags(), {"--gradient_checkpointing", "--per_device_eval_batch_size", "30"})}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, flags.empty() ? "f32" : flags.back()));
      const auto [planned, used] =
          planned_and_used(output_of(train_command("job", with(larger_batches, flags)), ranks));
      EXPECT_NEAR(planned, used, 0.05 * used + kProgramMib * ranks);
    }
  }
}

// A frozen base and adapters, of an encoder and of a decoder. The decoder is so large that the
// frozen weights show.
TEST_F(Memory, ThePlanHoldsForAdapters) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  constexpr double kProgramMib = 5;
  const Words adapters = {"--use_peft", "--lora_target_modules", "all-linear", "--save_strategy",
                          "no",         "--overwrite_output_dir"};
  // 9.4 million parameters in its layers.
  const std::string larger = drawn_decoder(
      "larger",
      "hidden_size=512,num_attention_heads=8,num_key_value_heads=4,num_hidden_layers=4,"
      "intermediate_size=1024");
  constexpr double kLayersMib = 9;  // a byte for each of them
  for (const char* command : {"run_glue", "run_sft"}) {
    use(demo_task(command));
    const bool decodes = command == std::string_view("run_sft");
    const Words model = decodes ? Words{"--model_name_or_path", larger}
                                : Words{"--per_device_train_batch_size", "24"};
    for (const int ranks : {1, 2}) {
      double used_in_f32 = 0;
      for (const Words& precision : {Words{}, Words{"--bf16"}}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {}", command, ranks, precision.size()));
        const auto [planned, used] = planned_and_used(
            output_of(train_command("job", with(with(adapters, model), precision)), ranks));
        EXPECT_NEAR(planned, used, 0.05 * used + kProgramMib * ranks);
        EXPECT_GT(used, decodes ? 40 : 10);
        // In bf16 the frozen matrices take 2 bytes instead of 4, and no f32 values.
        if (precision.empty()) {
          used_in_f32 = used;
        } else if (decodes) {
          EXPECT_LT(used, used_in_f32 - 2 * kLayersMib + kProgramMib * ranks);
        }
      }
    }
  }
}

// Their workers plan alone, each for all of them. The agent counts, too: it is a process as large
// as the program. So what remains in addition to 5 % is small.
TEST_F(Memory, ThePlanHoldsForElasticJobs) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  constexpr double kProcessMib = 1;
  for (const int workers : {1, 2, 3}) {
    for (const Words& flags : {Words{}, eval_flags()}) {
      SCOPED_TRACE(fmt::format("{} workers, {}", workers, flags.empty() ? "no evaluation" : ""));
      const auto [planned, used] = planned_and_used(elastic_output(
          workers,
          with({"--max_train_samples", "400", "--per_device_train_batch_size", "12"}, flags)));
      EXPECT_NEAR(planned, used, 0.05 * used + kProcessMib * (workers + 1));
    }
  }
}

// Their answers are most of what they take; so are the outputs that quantization compares.
TEST_F(Memory, ThePlanHoldsForLargeEvaluations) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  constexpr double kProgramMib = 3;
  const Words many = {"--do_eval",
                      "--validation_file",
                      (kDemo / "train.json").native(),
                      "--per_device_eval_batch_size",
                      "64",
                      "--overwrite_output_dir"};
  for (const Words& flags : {Words{}, Words{"--apply_quantization", "--quantization_approach",
                                            "dynamic", "--verify_loading"}}) {
    SCOPED_TRACE(flags.size());
    const auto [planned, used] = planned_and_used(
        output_of(with(with({kProgram, "run_qa", "--model_name_or_path", (kDemo / "model").native(),
                             "--output_dir", path("job").native(), "--max_seq_length", "128",
                             "--doc_stride", "32", "--tolerance_criterion", "0.9"},
                            many),
                       flags),
                  1));
    EXPECT_NEAR(planned, used, 0.05 * used + kProgramMib);
  }
}

// The outputs of a set with thousands of labels: with one rank they are there once.
TEST_F(Memory, ThePlanHoldsForManyLabels) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  constexpr double kProgramMib = 5;
  constexpr int kTexts = 8000, kLabels = 2000;
  std::string rows;
  for (int i = 0; i < kTexts; ++i)
    rows += fmt::format("{{\"text\": \"text {0}\", \"label\": [\"l{1}\", \"l{2}\"]}}\n", i,
                        i % kLabels, 7 * i % kLabels);
  const std::string file = path("rows.json").native();
  std::ofstream(file) << rows;
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const auto [planned, used] = planned_and_used(output_of(
        {kProgram, "run_classification", "--model_name_or_path", (kDemo / "model").native(),
         "--train_file", file, "--validation_file", file, "--text_column_names", "text",
         "--label_column_name", "label", "--do_eval", "--max_seq_length", "16",
         "--per_device_eval_batch_size", "64", "--output_dir", path("job").native()},
        ranks));
    EXPECT_NEAR(planned, used, 0.05 * used + kProgramMib * ranks);
  }
}

// Embeddings of all rows of a step, and pieces of short texts.
TEST_F(Memory, ThePlanHoldsForLargeContrasts) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  constexpr double kProgramMib = 5;
  constexpr int kRows = 4096;
  std::string rows;
  for (int row = 0; row < kRows; ++row)
    rows += fmt::format("{{\"anchor\": \"ship {0}\", \"positive\": \"{0} sails\"}}\n", row);
  write_file(path("rows.jsonl"), rows);
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const auto [planned, used] = planned_and_used(output_of(
        {kProgram, "run_embedding", "--model_name_or_path", (kDemo / "model").native(),
         "--train_file", path("rows.jsonl").native(), "--do_train", "--max_steps", "1",
         "--save_strategy", "no", "--per_device_train_batch_size", std::to_string(kRows / ranks),
         "--mini_batch_size", "32", "--gather_across_devices", "--output_dir", path("job").native(),
         "--overwrite_output_dir"},
        ranks));
    EXPECT_NEAR(planned, used, 0.05 * used + kProgramMib * ranks);
  }
}

// A corpus larger than the memory of its job: hashing, reading, and training on its tokens map
// files whose pages do not stay, the first time and with kept tokens.
TEST_F(Memory, ThePlanHoldsForLargeCorpora) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  constexpr std::size_t kBytes = std::size_t{96} << 20;
  constexpr double kMost = 90;  // MiB, less than the text and than its tokens
  std::string text;
  for (std::size_t line = 0; text.size() < kBytes; ++line)
    text +=
        fmt::format("{} the ferry of the island sails at seven, and comes back at nine\n", line);
  write_file(path("corpus.txt"), text);
  const Words command = {kProgram,
                         "run_mlm",
                         "--model_name_or_path",
                         (kDemo / "model").native(),
                         "--train_file",
                         path("corpus.txt").native(),
                         "--do_train",
                         "--max_steps",
                         "20",
                         "--max_seq_length",
                         "64",
                         "--validation_split_percentage",
                         "0",
                         "--save_strategy",
                         "no",
                         "--overwrite_output_dir",
                         "--output_dir",
                         path("job").native()};
  for (const char* tokens : {"made", "kept"}) {
    SCOPED_TRACE(tokens);
    const ProcessResult result =
        run(command, {{"TANDEM_FEATURE_CACHE", path("cache").native()}, {"OMP_NUM_THREADS", "2"}});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto [planned, used] = planned_and_used(unwrapped(result.out));
    EXPECT_LT(planned, kMost);
    EXPECT_LT(used, kMost);
  }
}

// The line has the excess of used over planned memory.
TEST_F(Memory, MoreThanPlannedHasAPlus) {
  static const std::regex kLine(
      R"(memory used on this node: (\d+) MiB, planned (\d+) \(([+-])([0-9.]+)%\))");
  const std::string out = run_ok(train_command("job", {"--max_steps", "1"})).out;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(out, match, kLine)) << out;
  const double used = std::stod(match[1]), planned = std::stod(match[2]);
  const double more = std::stod(match[4]) * (match[3] == "+" ? 1 : -1);
  // The sizes are rounded to MiB, the share to a tenth.
  EXPECT_GE(more, 100 * ((used - 0.5) / (planned + 0.5) - 1) - 0.05) << match[0];
  EXPECT_LE(more, 100 * ((used + 0.5) / (planned - 0.5) - 1) + 0.05) << match[0];
}

using MemoryOfMiniLm = Memory;

// A model that is larger than the program: checkpoints and loading an int8 model take no unplanned
// memory.
TEST_F(MemoryOfMiniLm, ThePlanHoldsInInt8) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  if (!std::filesystem::exists(minilm_dir() / "model.safetensors"))
    GTEST_SKIP() << "no MiniLM in build/test-data";
  const auto [planned, used] = planned_and_used(output_of(
      train_command("job",
                    with(eval_flags(),
                         {"--model_name_or_path", minilm_dir().native(), "--max_steps", "2",
                          "--save_steps", "1", "--save_total_limit", "1", "--apply_quantization",
                          "--train_before_quantization", "--quantization_approach", "dynamic",
                          "--verify_loading", "--tolerance_criterion", "1"})),
      1));
  EXPECT_NEAR(planned, used, 0.05 * used);
}

// The plan includes the moments of all word embeddings, but only rows of used words are written:
// training on few words leaves most of them out. Memory beyond the plan has no such excuse.
TEST_F(MemoryOfMiniLm, ThePlanHoldsForSmallBatches) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  if (!std::filesystem::exists(minilm_dir() / "model.safetensors"))
    GTEST_SKIP() << "no MiniLM in build/test-data";
  constexpr double kMomentsMib = 2.0 * 30522 * 384 * sizeof(float) / (1 << 20);
  for (const char* batch : {"1", "12"}) {
    SCOPED_TRACE(batch);
    const auto [planned, used] = planned_and_used(
        output_of(train_command("job", {"--model_name_or_path", minilm_dir().native(),
                                        "--max_steps", "3", "--per_device_train_batch_size", batch,
                                        "--save_strategy", "no", "--overwrite_output_dir"}),
                  1));
    EXPECT_LE(used, 1.05 * planned);
    EXPECT_LE(planned, 1.05 * used + kMomentsMib);
  }
}

// The guide of GISTEmbedLoss has activations of its own, those of 2,048 tokens at most.
TEST_F(MemoryOfMiniLm, ThePlanIncludesTheGuide) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  if (!std::filesystem::exists(minilm_dir() / "model.safetensors"))
    GTEST_SKIP() << "no MiniLM in build/test-data";
  std::string rows, words;
  for (int word = 0; word < 60; ++word) words += " sail";
  for (int row = 0; row < 16; ++row)
    rows +=
        fmt::format("{{\"anchor\": \"ship {0}{1}\", \"positive\": \"boat {0}{1}\"}}\n", row, words);
  write_file(path("rows.jsonl"), rows);
  const auto of_job = [&](const Words& loss) {
    return planned_and_used(output_of(
        with({kProgram, "run_embedding", "--model_name_or_path", minilm_dir().native(),
              "--train_file", path("rows.jsonl").native(), "--do_train", "--max_steps", "1",
              "--save_strategy", "no", "--per_device_train_batch_size", "16", "--mini_batch_size",
              "8", "--output_dir", path("job").native(), "--overwrite_output_dir"},
             loss),
        1));
  };
  const auto [planned, used] = of_job({"--loss", "MultipleNegativesRankingLoss"});
  const auto [guided_plan, guided] =
      of_job({"--loss", "GISTEmbedLoss", "--guide", minilm_dir().native()});
  // The words of the texts are the same, so what remains is the guide.
  EXPECT_NEAR(guided_plan - planned, guided - used, 0.05 * guided);
}

// One worker reads the model's file when the whole state is there, which may be the peak.
TEST_F(MemoryOfMiniLm, ThePlanHoldsForElasticJobs) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  if (!std::filesystem::exists(minilm_dir() / "model.safetensors"))
    GTEST_SKIP() << "no MiniLM in build/test-data";
  for (const int workers : {1, 2}) {
    for (const char* batch : {"1", "8"}) {
      SCOPED_TRACE(fmt::format("{} workers, batch of {}", workers, batch));
      const auto [planned, used] = planned_and_used(
          elastic_output(workers, {"--model_name_or_path", minilm_dir().native(), "--max_steps",
                                   "3", "--per_device_train_batch_size", batch}));
      EXPECT_NEAR(planned, used, 0.05 * used);
    }
  }
}

// Messages between nodes are as large as the gradients.
TEST_F(MemoryOfMiniLm, ThePlanHoldsOnTwoNodes) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  if (!std::filesystem::exists(minilm_dir() / "model.safetensors"))
    GTEST_SKIP() << "no MiniLM in build/test-data";
  const auto [planned, used] = planned_and_used(
      output_of(train_command("job", {"--model_name_or_path", minilm_dir().native(), "--max_steps",
                                      "2", "--save_strategy", "no"}),
                2, /*apart=*/true));
  EXPECT_NEAR(planned, used, 0.05 * used);
}

TEST_F(Memory, AnEvaluationPlansNoGradients) {
  const std::string out =
      run_ok(with({kProgram, "run_qa", "--model_name_or_path", (kDemo / "model").native(),
                   "--output_dir", path("job").native(), "--log_level", "debug"},
                  eval_flags()))
          .out;
  EXPECT_THAT(out, ContainsRegex("memory: .* gradients 0[;,]"));
  EXPECT_THAT(run_ok(train_command("trained", {"--log_level", "debug"})).out,
              ContainsRegex("memory: .* gradients [1-9]"));
}

// After training an evaluation needs nothing but room for its logits, which are less than half a
// MiB here; alone it has an arena.
TEST_F(Memory, AnEvaluationRunsInTheMemoryOfTraining) {
  const Words padded =
      with(eval_flags(), {"--pad_to_max_length", "true", "--max_seq_length", "128", "--doc_stride",
                          "32", "--per_device_eval_batch_size", "4", "--log_level", "debug"});
  EXPECT_THAT(run_ok(train_command("trained", padded)).out,
              ContainsRegex("memory: .* evaluation 0,"));
  EXPECT_THAT(run_ok(with({kProgram, "run_qa", "--model_name_or_path", (kDemo / "model").native(),
                           "--output_dir", path("alone").native()},
                          padded))
                  .out,
              ContainsRegex("memory: .* evaluation [1-9]"));
}

TEST_F(Memory, AControlGroupThatIsTooSmallIsNamedBeforeTraining) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  // The program alone takes some 30 MiB of it, most of them pages of files that do not count.
  const ControlGroup group(std::size_t{24} << 20);
  if (!group.works()) GTEST_SKIP() << "no control group can be made here (needs root)";
  const Words large = {"--per_device_train_batch_size", "48", "--max_train_samples", "400"};
  const ProcessResult refused = run(group.inside(train_command("job", large)));
  EXPECT_EQ(refused.exit_code, 1) << refused.out << refused.err;
  EXPECT_THAT(refused.err, ContainsRegex("rank 0 will need [0-9]+ MiB of memory at the peak, and "
                                         "memory[._a-z]+ of the cgroup /tandem-test-[0-9]+ allows "
                                         "24 MiB"));
  EXPECT_EQ(refused.out.find("Running training"), std::string::npos);
}

// Address space is reserved in large pieces: the limit ends one of them, or the comparison with the
// plan, before training.
TEST_F(Memory, ALimitOfAddressSpaceIsNamed) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve terabytes of address space";
  const Words command = train_command("job");
  Words limited = {"/bin/sh", "-c", "ulimit -v 120000 && exec \"$@\"", "sh"};
  limited.insert(limited.end(), command.begin(), command.end());
  const ProcessResult refused = run(limited);
  EXPECT_EQ(refused.exit_code, 1) << refused.out << refused.err;
  EXPECT_THAT(refused.err, ContainsRegex("RLIMIT_AS"));
  EXPECT_EQ(refused.out.find("Running training"), std::string::npos);
}

// The hard limit is named; a soft one is raised.
TEST_F(Memory, ALimitOfStacksIsNamed) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need larger stacks";
  const auto limited = [&](const std::string& limit) {
    const Words shell = {"/bin/bash", "-c", "ulimit " + limit + " && exec \"$@\"", "bash"};
    return run(with(shell, train_command("job", {"--overwrite_output_dir"})));
  };
  for (const char* limit : {"-s 64", "-s 100", "-s 512"}) {
    const ProcessResult refused = limited(limit);
    EXPECT_EQ(refused.exit_code, 1) << limit << refused.out << refused.err;
    EXPECT_THAT(refused.err, ContainsRegex("RLIMIT_STACK.* found [0-9]+ KiB, expected at least"));
  }
  for (const char* limit : {"-S -s 64", "-s 1024"}) {
    const ProcessResult done = limited(limit);
    EXPECT_EQ(done.exit_code, 0) << limit << done.out << done.err;
  }
}

// A job of one rank and of two, each in a mount namespace of its own.
TEST_F(Memory, AJobRunsWithoutProc) {
  if (kSanitized) GTEST_SKIP() << "sanitizers read /proc/self/maps";
  const Words hidden = {
      "unshare", "-m", "/bin/sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"};
  if (run(with(hidden, {"true"})).exit_code != 0)
    GTEST_SKIP() << "no mount namespace can be made here (needs root)";
  const auto [planned, used] = planned_and_used(run_ok(with(hidden, train_command("alone"))).out);
  EXPECT_GT(planned, 5);
  EXPECT_GT(used, 5);
  run_ranks(with(hidden, train_command("two", {"--logical_shards", "1"})), 1);
  run_ranks(with(hidden, train_command("ranks")), 2);
  EXPECT_TRUE(weights("alone") == weights("two"));
}

TEST_F(Memory, IsFlatOver500Steps) {
  if (kSanitized) GTEST_SKIP() << "the address sanitizer keeps what is freed";
  const auto used_after = [&](const std::string& steps) {
    return planned_and_used(output_of(train_command("job" + steps, {"--max_steps", steps,
                                                                    "--save_strategy", "no"}),
                                      1))
        .second;
  };
  EXPECT_NEAR(used_after("20"), used_after("500"), 2);
}

// Keys and order of transformers' TrainerMemoryTracker; rank 0 reports itself.
TEST_F(Memory, StagesAreInTheResults) {
  const Words flags = with(eval_flags(), {"--skip_memory_metrics", "false", "--eval_strategy",
                                          "steps", "--eval_steps", "6"});
  for (const int ranks : {1, 2}) {
    const std::string name = fmt::format("job{}", ranks);
    const std::string out = output_of(train_command(name, flags), ranks);
    const auto results = [&](const std::string& file) {
      return nlohmann::json::parse(read_file(path(name) / file));
    };
    const auto train = results("train_results.json");
    // Activations alone are more than a megabyte.
    EXPECT_GT(train.at("train_mem_cpu_alloc_delta").get<std::int64_t>(), 1 << 20);
    EXPECT_GE(train.at("train_mem_cpu_peaked_delta").get<std::int64_t>(), 0);
    EXPECT_GT(train.at("before_init_mem_cpu").get<std::int64_t>(), 1 << 20);
    EXPECT_TRUE(train.contains("init_mem_cpu_alloc_delta") &&
                train.contains("init_mem_cpu_peaked_delta"));
    const auto eval = results("eval_results.json");
    EXPECT_TRUE(eval.contains("eval_mem_cpu_alloc_delta"));
    EXPECT_FALSE(eval.contains("before_init_mem_cpu"));
    EXPECT_THAT(out, ContainsRegex("  before_init_mem_cpu +=  +[0-9]+MB"));
    EXPECT_THAT(out, ContainsRegex("  train_mem_cpu_alloc_delta +=  +[0-9]+MB"));
  }
  EXPECT_EQ(run_ok(train_command("without")).out.find("_mem_"), std::string::npos);
}

TEST_F(Memory, CheckpointingChangesNoBit) {
  for (const Words& flags : {Words{}, Words{"--bf16"}}) {
    SCOPED_TRACE(flags.empty() ? "f32" : "bf16");
    const Words more = with(flags, {"--overwrite_output_dir"});
    const Words two_shards = with(more, {"--logical_shards", "2"});
    run_ok(train_command("kept", two_shards));
    run_ok(train_command("again", with(two_shards, {"--gradient_checkpointing"})));
    EXPECT_TRUE(weights("kept") == weights("again"));
    run_ranks(train_command("ranks", with(more, {"--gradient_checkpointing"})), 2);
    EXPECT_TRUE(weights("kept") == weights("ranks"));
  }
}

TEST_F(Memory, TheTimeOfTheStepsIsReported) {
  static const std::regex kLine(
      R"(time of the steps: ([0-9.]+) % forward and backward, ([0-9.]+) % sums of gradients and waits for other ranks, ([0-9.]+) % optimizer)");
  for (const int ranks : {1, 2}) {
    const std::string out = output_of(train_command("time" + std::to_string(ranks),
                                                    {"--max_steps", "3", "--save_strategy", "no"}),
                                      ranks);
    std::smatch match;
    ASSERT_TRUE(std::regex_search(out, match, kLine)) << out;
    for (const int part : {1, 2, 3}) EXPECT_GT(std::stod(match[part]), 0) << ranks;
    EXPECT_NEAR(std::stod(match[1]) + std::stod(match[2]) + std::stod(match[3]), 100, 0.2);
  }
}

TEST_F(Memory, Bf16ReportsWhatItSaves) {
  const auto job = run_ok(train_command("job", {"--bf16", "--max_steps", "1"}));
  // A line of the start, or a warning if bf16 was not faster: what is measured here depends on what
  // else the machine does.
  EXPECT_THAT(job.out + job.err,
              ContainsRegex("products: [0-9]+ GFLOP/s in bf16, [0-9]+ GFLOP/s in f32"));
}

}  // namespace
}  // namespace tandem::testing
