// Jobs on processors of every class, whatever this machine has: the test build of the program
// claims each of them (tests/emulated_cpu). Where the machine has the instructions they are
// executed, elsewhere their emulation is.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "e2e/job.h"
#include "tandem/kernels/cpu_features.h"

namespace tandem::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

// Features and implementations of a class. Operations of `others` all have one implementation.
struct CpuClass {
  const char* name;
  const char* features;  // as messages name them
  const char *gemm_f32, *gemm_bf16, *attention, *others, *int8;
  const char* beyond;          // a feature that it lacks, or null
  const char* beyond_refusal;  // and why its kernels are refused: gemm=`beyond`
};

constexpr const char* kNoVectors = "no vector extension that tandem uses";
constexpr CpuClass kClasses[] = {
    {"reference", kNoVectors, "onednn", "reference", "reference", "reference", "reference", "avx2",
     "this CPU has no AVX2 with FMA"},
    {"avx2", "AVX2", "avx2", "avx2", "avx2", "avx2", "avx2", "avx512",
     "this CPU has no AVX-512 (F, BW, DQ, VL)"},
    {"avx512", "AVX2, AVX-512", "avx512", "avx512", "avx512", "avx512", "avx2", "avx512bf16",
     "this CPU has no AVX512_BF16"},
    {"avx512vnni", "AVX2, AVX-512, AVX512_VNNI", "avx512", "avx512", "avx512", "avx512",
     "avx512vnni", "avx512bf16", "this CPU has no AVX512_BF16"},
    {"avx512bf16", "AVX2, AVX-512, AVX512_BF16, AVX512_VNNI", "avx512bf16", "avx512bf16",
     "avx512bf16", "avx512", "avx512vnni", "amx", "this CPU has no AMX-BF16"},
    {"amx", "AVX2, AVX-512, AVX512_BF16, AVX512_VNNI, AMX-BF16, AMX-INT8", "amx", "amx", "amx",
     "avx512", "amx", nullptr, nullptr},
};

void PrintTo(const CpuClass& cpu, std::ostream* out) { *out << cpu.name; }

class CpuClasses : public JobTest, public ::testing::WithParamInterface<CpuClass> {
 protected:
  CpuClasses() { use_program(kEmulatedProgram); }

  static Variables as(const std::string& name, const Variables& more = {}) {
    Variables variables = more;
    variables.insert({{"OMP_NUM_THREADS", "1"}, {"TANDEM_EMULATED_CPU", name}});
    return variables;
  }
  static Variables here(const Variables& more = {}) { return as(GetParam().name, more); }

  // Small: emulated products in bf16 take most of the time.
  static Words small() {
    return {"--max_steps",
            "3",
            "--logging_steps",
            "1",
            "--max_seq_length",
            "96",
            "--per_device_train_batch_size",
            "2"};
  }
  Words short_command(const std::string& output, const Words& more = {}) const {
    return with(
        with(train_command(output, small()), {"--save_strategy", "no", "--overwrite_output_dir"}),
        more);
  }
  // A job of one rank, with two threads, and of two ranks: the same bits, and the kernels of the
  // class.
  void expect_bits_and_kernels(const Words& more, const std::string& gemm) {
    const CpuClass& cpu = GetParam();
    const ProcessResult one =
        run_ok(short_command("one", with(more, {"--logical_shards", "2", "--log_level", "debug"})),
               here());
    EXPECT_THAT(
        one.out + one.err,
        HasSubstr(fmt::format("gemm={}, attention={}, rotary={}, layer_norm={}, activation={}, "
                              "dropout={}, optimizer={}, reduce={}, int8={}",
                              gemm, cpu.attention, cpu.others, cpu.others, cpu.others, cpu.others,
                              cpu.others, cpu.others, cpu.int8)));
    run_ranks(short_command("ranks", more), 2, 1, {}, here());
    expect_equal_results("one", "ranks");
    run_ok(short_command("threads", with(more, {"--logical_shards", "2"})),
           here({{"OMP_NUM_THREADS", "2"}}));
    expect_equal_results("one", "threads");
  }
};

// f32 is the same on all CPUs with vectors, bf16 on those without AVX512_BF16.
TEST_P(CpuClasses, ComputeTheirBitsInF32) {
  const CpuClass& cpu = GetParam();
  expect_bits_and_kernels(eval_flags(), cpu.gemm_f32);
  if (std::string_view(cpu.name) == "reference") return;
  run_ok(short_command("avx2", with(eval_flags(), {"--logical_shards", "2"})), as("avx2"));
  expect_equal_results("one", "avx2");
}

TEST_P(CpuClasses, ComputeTheirBitsInBf16) {
  const CpuClass& cpu = GetParam();
  const Words flags = {"--bf16"};
  expect_bits_and_kernels(flags, cpu.gemm_bf16);
  run_ok(short_command("avx2", with(flags, {"--logical_shards", "2"})), as("avx2"));
  const std::string_view vectors = cpu.gemm_bf16;
  EXPECT_EQ(weights("one") == weights("avx2"), vectors == "avx2" || vectors == "avx512");
}

// The steps after a checkpoint are those of the job that was not interrupted.
TEST_P(CpuClasses, ResumeToTheSameBits) {
  const Words job =
      train_command("job", with(small(), {"--bf16", "--logical_shards", "2", "--save_steps", "1"}));
  run_ok(job, here());
  const auto whole = weights("job");
  std::filesystem::remove(path("job") / "model.safetensors");
  run_ok(with(job, {"--resume_from_checkpoint", (path("job") / "checkpoint-1").native()}), here());
  EXPECT_TRUE(weights("job") == whole);
}

// A job that classifies texts.
TEST_P(CpuClasses, LabelTexts) {
  use(demo_task("run_glue"));
  expect_bits_and_kernels({"--bf16"}, GetParam().gemm_bf16);
}

// The same int8 products on every class. The computation around them is f32, equal on all with
// vectors.
TEST_P(CpuClasses, QuantizeToTheSameAnswers) {
  const CpuClass& cpu = GetParam();
  const auto quantize = [&](const std::string& output, const std::string& name) {
    return run_ok(
        short_command(
            output,
            with(eval_flags(), {"--apply_quantization", "--train_before_quantization",
                                "--quantization_approach", "static", "--num_calibration_samples",
                                "30", "--tolerance_criterion", "1", "--log_level", "debug"})),
        as(name));
  };
  const ProcessResult result = quantize("here", cpu.name);
  EXPECT_THAT(result.out + result.err, HasSubstr(fmt::format("int8={}", cpu.int8)));
  if (std::string_view(cpu.name) == "reference") return;
  quantize("avx2", "avx2");
  for (const std::string file : {"model.safetensors", "eval_nbest_predictions.json"})
    EXPECT_TRUE(read_file(path("here") / file) == read_file(path("avx2") / file)) << file;
}

TEST_P(CpuClasses, RefuseWhatTheyLack) {
  const CpuClass& cpu = GetParam();
  const auto error_of = [&](const Variables& more) {
    const ProcessResult result = run(short_command("out", {"--bf16"}), here(more));
    EXPECT_EQ(result.exit_code, 1) << result.err;
    return result.err;
  };
  const std::string found = fmt::format("; found: {}", cpu.features);
  if (cpu.beyond != nullptr) {
    EXPECT_THAT(
        error_of({{"TANDEM_CPU_FEATURES", cpu.beyond}}),
        HasSubstr(fmt::format("TANDEM_CPU_FEATURES asks for {}, which this CPU does not have{}",
                              cpu.beyond, found)));
    EXPECT_THAT(error_of({{"TANDEM_KERNELS", fmt::format("gemm={}", cpu.beyond)}}),
                HasSubstr(fmt::format("TANDEM_KERNELS asks for gemm={}, but {}{}", cpu.beyond,
                                      cpu.beyond_refusal, found)));
  }
  EXPECT_THAT(error_of({{"TANDEM_CPU_FEATURES", "none"}, {"TANDEM_KERNELS", "gemm=onednn"}}),
              HasSubstr(fmt::format("TANDEM_KERNELS asks for gemm=onednn, but oneDNN has no bf16 "
                                    "products for a CPU without AVX-512 (F, BW, DQ, VL); found: {}",
                                    kNoVectors)));
}

INSTANTIATE_TEST_SUITE_P(Jobs, CpuClasses, ::testing::ValuesIn(kClasses),
                         [](const auto& test) { return std::string(test.param.name); });

class ClaimedCpu : public JobTest {};

// The program itself claims nothing.
TEST_F(ClaimedCpu, OnlyTheTestBuildClaimsAnotherCpu) {
  const ProcessResult result =
      run_ok(train_command("out", {"--max_steps", "1", "--log_level", "debug"}),
             {{"OMP_NUM_THREADS", "1"}, {"TANDEM_EMULATED_CPU", "reference"}});
  const auto cpu = kernels::CpuFeatures::detect();
  EXPECT_EQ(cpu.avx2, result.out.find("layer_norm=reference") == std::string::npos) << result.out;
  EXPECT_THAT(run({kEmulatedProgram, "bench", "peak"}, {{"TANDEM_EMULATED_CPU", "sse9"}}).err,
              HasSubstr("TANDEM_EMULATED_CPU: unknown class of processors 'sse9'; expected one of "
                        "reference, avx2, avx512, avx512vnni, avx512bf16, amx"));
}

// A job whose ranks have processors of two classes: they agree on kernels of the same bits.
TEST_F(ClaimedCpu, RanksOfTwoClassesComputeTheBitsOfOne) {
  use_program(kEmulatedProgram);
  const auto job = [&](const std::string& output) {
    return train_command(output, {"--max_steps", "3", "--max_seq_length", "96", "--save_strategy",
                                  "no", "--logical_shards", "2"});
  };
  run_ok(job("one"), {{"OMP_NUM_THREADS", "1"}, {"TANDEM_EMULATED_CPU", "avx2"}});
  Words words = {program(),
                 "mpirun",
                 "-n",
                 "2",
                 "sh",
                 "-c",
                 ": tandem; [ $PMI_RANK = 0 ] && TANDEM_EMULATED_CPU=amx || "
                 "TANDEM_EMULATED_CPU=avx512; export TANDEM_EMULATED_CPU; exec \"$@\"",
                 "sh"};
  const Words command = job("two");
  words.insert(words.end(), command.begin(), command.end());
  run_ok(words, {{"OMP_NUM_THREADS", "1"}});
  EXPECT_TRUE(weights("one") == weights("two"));
}

// An elastic job on hosts with processors of two classes, and the reports to the second one.
struct Meeting {
  const char* name;
  const char *job, *other;  // classes; /x: nothing beyond x is executed
  const char* kernels;      // TANDEM_KERNELS of both
  bool bf16;
  std::vector<const char*> expected_texts;  // all of it; none: it joins
};

void PrintTo(const Meeting& meeting, std::ostream* out) { *out << meeting.name; }

class ElasticCpuClasses : public JobTest, public ::testing::WithParamInterface<Meeting> {
 protected:
  ElasticCpuClasses() { use_program(kEmulatedProgram); }

  Words command() const {
    const Meeting& meeting = GetParam();
    Words flags = {"--max_train_samples", "600", "--max_steps",     "3000",
                   "--logging_steps",     "10",  "--save_strategy", "no"};
    if (meeting.bf16) flags.emplace_back("--bf16");
    Words words = train_command("job", flags);
    Words all = {program(),        "run",  "--nnodes",        "1:2",     "--nproc-per-node", "1",
                 "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint_, words.at(1) + ".py"};
    all.insert(all.end(), words.begin() + 2, words.end());
    return all;
  }
  static Variables as(const char* name) {
    return {{"TANDEM_EMULATED_CPU", name}, {"TANDEM_KERNELS", GetParam().kernels}};
  }
  static bool printed(Process& job, const std::string& text) {
    const auto limit = steady_clock::now() + std::chrono::seconds(60);
    while (job.running() && steady_clock::now() < limit) {
      if ((job.out_so_far() + job.err_so_far()).find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "'" << text << "' was not printed: " << job.out_so_far() << job.err_so_far();
    return false;
  }
  static void stop(Process& process) {
    ::kill(process.pid(), SIGTERM);
    process.wait();
  }

 private:
  std::string endpoint_ = fmt::format("127.0.0.1:{}", free_port());
};

TEST_P(ElasticCpuClasses, MeetInOneJob) {
  const Meeting& meeting = GetParam();
  Process job(command(), as(meeting.job));
  ASSERT_TRUE(printed(job, "/3000 ["));
  Process other(command(), as(meeting.other));
  if (meeting.expected_texts.empty()) {
    EXPECT_TRUE(printed(job, "2 of 2 workers continue"));
    stop(other);
    return stop(job);
  }
  const ProcessResult refused = other.wait();
  EXPECT_EQ(refused.exit_code, 1);
  const std::string reason = unwrapped(refused.err);
  EXPECT_THAT(reason, HasSubstr("refused by the job"));
  EXPECT_THAT(reason, HasSubstr("computes with other kernels than the job"));
  for (const char* text : meeting.expected_texts) EXPECT_THAT(reason, HasSubstr(text));
  for (const char* operation : {"gemm", "attention", "layer_norm", "int8", "processor"}) {
    const bool differs = std::any_of(
        meeting.expected_texts.begin(), meeting.expected_texts.end(),
        [&](const char* text) { return std::string_view(text).starts_with(operation); });
    EXPECT_EQ(reason.find(fmt::format(" {}: ", operation)) != reason.npos, differs) << operation;
  }
  EXPECT_TRUE(job.running());
  stop(job);
}

INSTANTIATE_TEST_SUITE_P(
    Hosts, ElasticCpuClasses,
    ::testing::Values(
        // f32 is the same on all vectors.
        Meeting{"Avx2JoinsAmx", "amx", "avx2", "", false, {}},
        Meeting{"AmxJoinsAvx512", "avx512", "amx", "", false, {}},
        Meeting{"Avx512JoinsAvx2InBf16", "avx2", "avx512vnni", "", true, {}},
        // oneDNN chooses by itself.
        Meeting{"OneDnnOfAmxAndBf16",
                "amx",
                "avx512bf16",
                "gemm=onednn",
                false,
                {"processor: ", "AVX512_VNNI, AMX-BF16, AMX-INT8 on the job's hosts"}},
        Meeting{"OneDnnOfBf16AndVnni",
                "avx512bf16",
                "avx512vnni",
                "gemm=onednn",
                false,
                {"processor: ", "with AVX2, AVX-512, AVX512_BF16, AVX512_VNNI on the job's hosts",
                 "with AVX2, AVX-512, AVX512_VNNI on "}},
        Meeting{"OneDnnOfAvx512AndAvx2",
                "avx512",
                "avx2",
                "gemm=onednn",
                false,
                {"processor: ", "with AVX2, AVX-512 on the job's hosts", "with AVX2 on "}},
        Meeting{"OneDnnOfAvx2AndNothing",
                "avx2",
                "reference",
                "gemm=onednn",
                false,
                {"processor: ", "attention: vector on the job's hosts, reference on ",
                 "layer_norm: vector on the job's hosts, reference on ",
                 "int8: vector on the job's hosts, reference on ",
                 "with no vector extension that tandem uses on "}},
        // Pairs of bf16 round in another way.
        Meeting{"TilesAndPairsInBf16",
                "amx",
                "avx512bf16",
                "",
                true,
                {"gemm: amx on the job's hosts, avx512bf16 on ",
                 "attention: amx on the job's hosts, avx512bf16 on "}},
        Meeting{"VectorsAndPairsInBf16",
                "avx2",
                "avx512bf16",
                "",
                true,
                {"gemm: vector on the job's hosts, avx512bf16 on ",
                 "attention: vector on the job's hosts, avx512bf16 on "}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tandem::testing
