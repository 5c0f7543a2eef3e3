// Jobs whose workers die while they run: the survivors continue, a returning worker joins, and the
// bits are those of an undisturbed job.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "e2e/job.h"
#include "support/children.h"
#include "support/control_group.h"
#include "support/sanitizers.h"
#include "tandem/core/memory_limits.h"
#include "tandem/kernels/cpu_features.h"

namespace tandem::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::Not;

class ElasticTest : public JobTest {
 protected:
  static constexpr const char* kAgent[] = {"run", "--standalone", "--nproc-per-node", "3"};

  Words command(const std::string& output, int steps, const Words& more = {}) const {
    Words words =
        train_command(output, {"--max_train_samples", "600", "--max_steps", std::to_string(steps),
                               "--logging_steps", "10", "--save_steps", "25"});
    words = with(words, eval_flags());
    words.erase(words.begin(), words.begin() + 2);
    Words all = {kProgram};
    all.insert(all.end(), std::begin(kAgent), std::end(kAgent));
    all.push_back(task_name() + ".py");
    return with(with(all, words), more);
  }
  // The reference is an undisturbed job.
  ProcessResult run_calm(int steps, const Words& more = {}) const {
    return run_reference(command("calm", steps, more), "calm", {});
  }
  std::string task_name() const { return train_command("x").at(1); }

  static std::vector<pid_t> three_workers(Process& job) {
    std::vector<pid_t> workers;
    for (int tries = 0; workers.size() < 3 && tries < 5000; ++tries) {
      workers = children(job.pid());
      std::this_thread::sleep_for(milliseconds(1));
    }
    return workers;
  }
  // Waits until the job has printed `text`, or has ended.
  static bool printed(Process& job, const std::string& text) {
    const auto limit = steady_clock::now() + std::chrono::seconds(60);
    while (steady_clock::now() < limit) {
      if ((job.out_so_far() + job.err_so_far()).find(text) != std::string::npos) return true;
      if (!job.running()) break;
      std::this_thread::sleep_for(milliseconds(2));
    }
    ADD_FAILURE() << "'" << text << "' was not printed: " << job.out_so_far() << job.err_so_far();
    return false;
  }
  // `words` with so many workers, and more flags of the agent.
  static Words with_workers(Words words, const std::string& workers, const Words& more = {}) {
    const auto at = std::find(words.begin(), words.end(), "3");
    *at = workers;
    words.insert(at + 1, more.begin(), more.end());
    return words;
  }
  // Until then it is a copy of the agent, which waits for it.
  static bool is_started(pid_t worker) {
    const auto words = read_file_if_exists(fmt::format("/proc/{}/cmdline", worker)).value_or("");
    return words.find(std::string("\0run_qa\0", 8)) != words.npos;
  }
  // A process that the agent has started and that is not in `old`, once it is tandem's own.
  static pid_t new_worker(Process& job, const std::vector<pid_t>& old) {
    const auto limit = steady_clock::now() + std::chrono::seconds(30);
    while (job.running() && steady_clock::now() < limit) {
      for (const pid_t worker : children(job.pid())) {
        if (std::find(old.begin(), old.end(), worker) == old.end() && is_started(worker))
          return worker;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    throw std::runtime_error("no worker was started: " + job.out_so_far() + job.err_so_far());
  }
  static ProcessResult end(Process& job) {
    ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result;
  }
};

// A process in the group that takes memory until the kernel has killed another one for it, and
// ends.
class MemoryHog {
 public:
  explicit MemoryHog(const ControlGroup& group) : pid_(::fork()) {
    if (pid_ != 0) return;
    std::ofstream(group.folder() / "cgroup.procs") << ::getpid() << std::flush;
    const std::uint64_t before = out_of_memory_kills();
    for (int i = 0; i < 1000 && out_of_memory_kills() == before; ++i)
      ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
             -1, 0);
    ::_exit(out_of_memory_kills() > before ? 0 : 1);
  }
  bool has_taken_all() {
    int status = -1;
    return ::waitpid(pid_, &status, 0) == pid_ && status == 0;
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;
  pid_t pid_;
};

// The kernel kills a worker, which the test makes its first choice, and the agent can log the
// reason.
TEST_F(ElasticTest, TheKernelKillsAWorkerWhenMemoryRunsOut) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger than the job's";
  const ControlGroup group(std::size_t{512} << 20);
  if (!group.works()) GTEST_SKIP() << "no control group can be made here (needs root)";
  constexpr int kSteps = 120;
  run_calm(kSteps);
  Process job(group.inside(command("job", kSteps)));
  ASSERT_TRUE(printed(job, "/120 ["));
  for (const pid_t worker : children(job.pid()))
    std::ofstream(fmt::format("/proc/{}/oom_score_adj", worker)) << 1000;
  ASSERT_TRUE(MemoryHog(group).has_taken_all());
  const ProcessResult result = end(job);
  EXPECT_THAT(unwrapped(result.err),
              HasSubstr("was killed by SIGKILL; memory ran out: the kernel has killed a process of "
                        "this control group for that; it is started again"));
  expect_equal_results("calm", "job");
}

struct Event {
  const char* name;
  const char* when;          // as soon as this has been printed
  std::vector<int> workers;  // in the order in which they were started
  int signal;
  const char* logged;  // by the agent; a worker that is back soon may be missing in no view
  int steps = 120;
  const char* command = "run_qa";
};

void PrintTo(const Event& event, std::ostream* out) { *out << event.name; }

class ElasticEvents : public ElasticTest, public ::testing::WithParamInterface<Event> {};

TEST_P(ElasticEvents, LeaveTheBitsOfAnUndisturbedJob) {
  const Event& event = GetParam();
  if (event.signal == SIGSEGV) let_faults_kill();
  use(demo_task(event.command));
  run_calm(event.steps);
  Process job(command("job", event.steps), {{"TANDEM_STALL_TIMEOUT", "1"}});
  ASSERT_TRUE(printed(job, event.when));
  const std::vector<pid_t> workers = three_workers(job);
  ASSERT_EQ(workers.size(), 3u);
  for (const int worker : event.workers)
    ::kill(workers[static_cast<std::size_t>(worker)], event.signal);
  const ProcessResult result = end(job);
  EXPECT_THAT(result.err, HasSubstr(event.logged));
  expect_equal_results("calm", "job");
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, ElasticEvents,
    ::testing::Values(
        Event{"BeforeItIsReady", "3 workers of 1 thread", {1}, SIGKILL, "it is started again"},
        Event{"Rank0InTraining", "/120 [", {0}, SIGKILL, "was killed by SIGKILL"},
        Event{"AnotherInTraining", "/120 [", {2}, SIGKILL, "worker 2 is back"},
        Event{"AFault", "/120 [", {1}, SIGSEGV, "was killed by SIGSEGV"},
        Event{"TwoAtOnce", "/120 [", {0, 1}, SIGKILL, "it is started again"},
        Event{"AllAtOnce", "/120 [", {0, 1, 2}, SIGKILL, "it is started again"},
        Event{"OneIsStopped", "/120 [", {1}, SIGSTOP, "it is killed"},
        Event{"WhileSaving", "Saving model checkpoint to", {0}, SIGKILL, "was killed by SIGKILL"},
        Event{"InTheEvaluation", "Running Evaluation", {2}, SIGKILL, "was killed by SIGKILL"},
        Event{"Texts", "/60 [", {0}, SIGKILL, "was killed by SIGKILL", 60, "run_glue"},
        Event{"Words", "/60 [", {1}, SIGKILL, "was killed by SIGKILL", 60, "run_ner"},
        Event{"WordsInThePrediction",
              "Running Prediction",
              {2},
              SIGKILL,
              "was killed by SIGKILL",
              60,
              "run_ner"},
        Event{"SeveralLabels",
              "/60 [",
              {2, 0},
              SIGKILL,
              "was killed by SIGKILL",
              60,
              "run_classification"}),
    [](const auto& test) { return test.param.name; });

// While one worker is stopped the others come to the reduction of the gradients and wait there for
// its part: a worker killed now dies in the middle of the reduction.
TEST_F(ElasticTest, AWorkerDiesInAReduction) {
  constexpr int kSteps = 120;
  run_calm(kSteps);
  Process job(command("job", kSteps));
  ASSERT_TRUE(printed(job, "/120 ["));
  const std::vector<pid_t> workers = three_workers(job);
  ASSERT_EQ(workers.size(), 3u);
  ::kill(workers[2], SIGSTOP);
  std::this_thread::sleep_for(milliseconds(500));  // many steps; less than one may be silent
  ::kill(workers[1], SIGKILL);
  ::kill(workers[2], SIGCONT);
  EXPECT_THAT(end(job).err, HasSubstr("was killed by SIGKILL"));
  expect_equal_results("calm", "job");
}

TEST_F(ElasticTest, TheCalibrationOfAnInt8ModelIsDoneAgain) {
  const Words flags = {"--apply_quantization",      "--train_before_quantization",
                       "--quantization_approach",   "static",
                       "--num_calibration_samples", "300",
                       "--tolerance_criterion",     "1"};
  run_calm(20, flags);
  Process job(command("job", 20, flags));
  ASSERT_TRUE(printed(job, "calibration: 300 of"));
  ::kill(three_workers(job).at(1), SIGKILL);
  EXPECT_THAT(end(job).err, HasSubstr("of 3 workers continue after step 20"));
  expect_equal_results("calm", "job");
}

std::vector<std::string> log_entries(const std::string& out) {
  std::vector<std::string> entries;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{'")) entries.push_back(line);
  }
  return entries;
}

class ElasticCpus : public ElasticTest {};

// Two agents on one machine, the second of which hides the best vectors of its CPU: its f32 kernels
// compute the same bits where it still has AVX2, which oneDNN does not promise.
TEST_F(ElasticCpus, OfAnotherKindAreRefusedWithOneDnn) {
  const auto cpu = kernels::CpuFeatures::detect();
  if (!cpu.avx2) GTEST_SKIP() << "this CPU has no vectors that could be hidden";
  const std::string left = cpu.avx512 ? "avx2" : "none";
  const std::string endpoint = fmt::format("127.0.0.1:{}", free_port());
  Words words = command("job", 3000);
  words.erase(words.begin() + 2, words.begin() + 5);  // kAgent's flags
  const Words where = {"--nnodes",       "1:2",  "--nproc-per-node", "1",
                       "--rdzv-backend", "c10d", "--rdzv-endpoint",  endpoint};
  words.insert(words.begin() + 2, where.begin(), where.end());
  std::map<std::string, std::string> variables = {{"TANDEM_KERNELS", "gemm=onednn"}};
  Process job(words, variables);
  ASSERT_TRUE(printed(job, "/3000 ["));
  variables["TANDEM_CPU_FEATURES"] = left;
  Process other(words, variables);
  const ProcessResult refused = other.wait();
  EXPECT_EQ(refused.exit_code, 1);
  const std::string reason = unwrapped(refused.err);
  EXPECT_THAT(reason, HasSubstr("refused by the job"));
  // Only differences are named: both multiply with oneDNN, on processors that show different
  // instruction sets.
  EXPECT_THAT(reason, HasSubstr("processor: "));
  EXPECT_THAT(reason, HasSubstr(fmt::format("with {} on the job's hosts", cpu.describe())));
  EXPECT_THAT(reason, HasSubstr(fmt::format("with {} on ", cpu.limited_to(left).describe())));
  EXPECT_THAT(reason, Not(HasSubstr("gemm:")));
  EXPECT_TRUE(job.running());
  ::kill(job.pid(), SIGTERM);
  job.wait();
}

// Neither twice nor never, whenever the workers die.
TEST_F(ElasticTest, AnEntryOfTheLogIsPrintedOnce) {
  constexpr int kSteps = 120;
  const Words often = {"--logging_steps", "1", "--eval_strategy", "steps", "--eval_steps", "40"};
  const ProcessResult calm = run_calm(kSteps, often);
  const std::vector<std::string> expected = log_entries(calm.out);
  ASSERT_GT(expected.size(), static_cast<std::size_t>(kSteps));
  Process job(command("job", kSteps, often));
  const auto limit = steady_clock::now() + std::chrono::seconds(120);
  for (std::size_t entries = 7; entries < 100; entries += 13) {
    while (job.running() && log_entries(job.out_so_far()).size() < entries &&
           steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    for (const pid_t worker : children(job.pid())) ::kill(worker, SIGKILL);
  }
  std::vector<std::string> entries = log_entries(end(job).out);
  // The last one is about the time that the training took.
  ASSERT_EQ(entries.size(), expected.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].find("runtime") != std::string::npos) continue;
    EXPECT_EQ(entries[i], expected[i]) << "entry " << i;
  }
}

// Workers that die after an evaluation, before the next checkpoint, repeat it. The evaluator's
// table is that of an undisturbed job all the same.
TEST_F(ElasticTest, ARepeatedEvaluationHasOneRowInItsTable) {
  DemoTask task = pair_classification();
  task.command = "run_embedding";
  task.eval_flags.resize(3);  // without a prediction
  use(task);
  constexpr int kSteps = 60;
  const Words often = {"--loss",          "CoSENTLoss", "--eval_strategy", "steps",
                       "--eval_steps",    "6",          "--save_steps",    "25",
                       "--logging_steps", "2"};
  const auto table = [&](const std::string& output) {
    for (const auto& entry : std::filesystem::directory_iterator(path(output) / "eval"))
      return read_file(entry.path());
    return std::string();
  };
  run_calm(kSteps, often);
  const std::string expected = table("calm");
  ASSERT_EQ(std::count(expected.begin(), expected.end(), '\n'), 12);  // a head, 10, and the end
  Process job(command("job", kSteps, often));
  const auto limit = steady_clock::now() + std::chrono::seconds(120);
  for (const std::size_t entries : {8u, 16u, 24u}) {
    while (job.running() && log_entries(job.out_so_far()).size() < entries &&
           steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    for (const pid_t worker : children(job.pid())) ::kill(worker, SIGKILL);
  }
  end(job);
  EXPECT_EQ(table("job"), expected);
  expect_equal_results("calm", "job");
}

// One slow pipe takes the lines of the agent and of its workers.
TEST_F(ElasticTest, AViewIsLoggedBeforeItsSteps) {
  constexpr int kSteps = 120;
  const Words slow_pipe = {
      "/bin/sh", "-c",
      "\"$@\" 2>&1 | while IFS= read -r line; do sleep 0.002; echo \"$line\"; done", "sh"};
  Process job(with(slow_pipe, command("job", kSteps, {"--logging_steps", "1"})));
  const auto limit = steady_clock::now() + std::chrono::seconds(120);
  for (const std::size_t entries : {7, 33, 59}) {
    while (job.running() && log_entries(job.out_so_far()).size() < entries &&
           steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(1));
    for (const pid_t child : children(job.pid())) {
      const std::vector<pid_t> workers = children(child);
      if (!workers.empty() && is_started(workers.front())) ::kill(workers.front(), SIGKILL);
    }
  }
  static const std::regex kView("view [0-9]+: .* workers continue after step ([0-9]+)");
  std::size_t losses = 0, views = 0;
  std::smatch view;
  for (const std::string& line : testing::lines_of(end(job).out)) {
    if (line.starts_with("{'loss'")) ++losses;
    if (!std::regex_search(line, view, kView)) continue;
    ++views;
    EXPECT_LE(losses, std::stoul(view[1])) << line;
  }
  EXPECT_EQ(losses, std::size_t{kSteps});
  EXPECT_GE(views, 1U);
}

// Output of `tandem COMMAND WORDS` about the agent; it must appear within 20 s.
std::string run_control(const std::string& command, const std::vector<std::string>& words) {
  std::vector<std::string> all = {kProgram, command};
  all.insert(all.end(), words.begin(), words.end());
  const ProcessResult result = testing::run(all, {}, std::chrono::seconds(20));
  return fmt::format("{}{}exit code {}", result.out, result.err, result.exit_code);
}

TEST_F(ElasticTest, WorkersAreDrainedAndComeBack) {
  constexpr int kSteps = 400;
  run_calm(kSteps);
  Process job(command("job", kSteps), {{"TANDEM_STATUS_INTERVAL", "1"}});
  ASSERT_TRUE(printed(job, "/400 ["));
  const std::string agent = std::to_string(job.pid());
  EXPECT_THAT(run_control("status", {agent}), HasSubstr("3 of 3 workers compute"));

  EXPECT_THAT(run_control("drain", {"1", "--job", agent}),
              HasSubstr("worker 1 is drained; 2 of 3 workers continue"));
  ASSERT_TRUE(printed(job, "2 of 3 workers continue"));
  const std::string status = run_control("status", {agent});
  EXPECT_THAT(status, HasSubstr("worker 1 is drained"));
  EXPECT_THAT(status, HasSubstr("0 workers lost so far"));
  EXPECT_THAT(run_control("resize", {"1", "--job", agent}), HasSubstr("1 of 3 workers take part"));
  ASSERT_TRUE(printed(job, "1 of 3 workers continue"));
  EXPECT_THAT(run_control("drain", {"0", "--job", agent}), HasSubstr("is the only one"));
  EXPECT_THAT(run_control("drain", {"7", "--job", agent}), HasSubstr("there is no worker 7"));
  EXPECT_THAT(run_control("resize", {"4", "--job", agent}),
              HasSubstr("1 to 3 workers of the job, not 4"));
  EXPECT_THAT(run_control("resize", {"3", "--job", agent}), HasSubstr("3 of 3 workers take part"));

  const ProcessResult result = end(job);
  EXPECT_THAT(result.err, HasSubstr("worker 1 was drained"));
  EXPECT_THAT(result.err, HasSubstr("3 of 3 workers continue"));
  EXPECT_THAT(result.err, HasSubstr(" workers lost so far"));  // the line of every second
  expect_equal_results("calm", "job");
  EXPECT_THAT(run_control("status", {agent}), HasSubstr("no job of `tandem run` with the name"));
}

// All of them find it out, each alone, and the job ends with the first.
TEST_F(ElasticTest, AMissingModelIsReportedOnce) {
  Words words = command("job", 3);
  *(std::find(words.begin(), words.end(), "--model_name_or_path") + 1) = "/nowhere";
  const ProcessResult result = Process(words).wait();
  EXPECT_EQ(result.exit_code, 1);
  const std::string logged = "error: the model '/nowhere' was not found";
  EXPECT_THAT(result.err, HasSubstr(logged));
  EXPECT_EQ(result.err.find(logged), result.err.rfind(logged)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("root failure: "));
}

// If memory runs out at the same step in every attempt, a worker is killed there forever.
TEST_F(ElasticTest, AWorkerThatIsKilledAtOneStepAgainAndAgainEndsTheJob) {
  Process job(with_workers(
      command("job", 3, {"--max_train_samples", "5000", "--gradient_accumulation_steps", "100000"}),
      "1"));
  for (const char* computes : {"Running training", "view 2: ", "view 3: "}) {
    ASSERT_TRUE(printed(job, computes));
    const std::vector<pid_t> workers = children(job.pid());
    ASSERT_EQ(workers.size(), 1u);
    ::kill(workers[0], SIGKILL);
  }
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("3 times at step 1, which no worker could apply"));
  EXPECT_THAT(result.err, HasSubstr("root failure: rank 0"));
}

// Rank 0 hangs while it decides where the job begins: another one does it.
TEST_F(ElasticTest, AWorkerThatHangsBeforeItIsReadyIsStartedAgain) {
  constexpr int kSteps = 60;
  run_calm(kSteps);
  Process job(with_workers(command("job", kSteps), "3", {"--rdzv-conf", "join_timeout=6"}));
  ::kill(new_worker(job, {}), SIGSTOP);
  const ProcessResult result = end(job);
  EXPECT_THAT(unwrapped(result.err),
              HasSubstr("has used no processor for 3 s before it was ready"));
  EXPECT_THAT(result.err, HasSubstr("was stopped or stuck; it is started again"));
  expect_equal_results("calm", "job");
}

TEST_F(ElasticTest, WorkersThatHangAgainEndTheJob) {
  Process job(with_workers(command("job", 20), "1", {"--rdzv-conf", "join_timeout=6"}));
  std::vector<pid_t> stopped;
  for (int i = 0; i < 2; ++i) {
    stopped.push_back(new_worker(job, stopped));
    ::kill(stopped.back(), SIGSTOP);
  }
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
  EXPECT_THAT(unwrapped(result.err), HasSubstr("look at those of --output_dir"));
  EXPECT_THAT(unwrapped(result.err), HasSubstr("(--rdzv-conf join_timeout=SECONDS gives half"));
  EXPECT_THAT(unwrapped(result.err), HasSubstr("hung twice before they were ready"));
  EXPECT_THAT(result.err, HasSubstr("root failure: rank 0"));
}

// Each of its processes is killed in its first step (for example with memory that is enough for the
// others), and the others continue without it. The replacement is held back for a second, in which
// the other worker applies a step alone.
TEST_F(ElasticTest, AWorkerThatNeverHelpsIsGivenUp) {
  Process job(with_workers(
      command("job", 1000, {"--max_train_samples", "5000", "--gradient_accumulation_steps", "3"}),
      "2"));
  ASSERT_TRUE(printed(job, "Running training"));
  const std::string given_up = "times without ever helping to a step";
  std::vector<pid_t> seen = children(job.pid());
  ASSERT_EQ(seen.size(), 2u);
  std::size_t killed = job.err_so_far().size();
  ::kill(seen[1], SIGKILL);
  const auto wait_for = [&](const char* words, std::size_t from) {
    while (job.running() && job.err_so_far().find(words, from) == std::string::npos)
      std::this_thread::sleep_for(milliseconds(1));
  };
  // Where this process was late a step has been applied, and the count begins again.
  const auto limit = steady_clock::now() + std::chrono::seconds(60);
  for (std::string logged; logged.find(given_up) == logged.npos && steady_clock::now() < limit;) {
    seen.push_back(new_worker(job, seen));
    ::kill(seen.back(), SIGSTOP);
    wait_for("1 of 2 workers continue", killed);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::kill(seen.back(), SIGCONT);
    wait_for("2 of 2 workers continue", killed);
    killed = job.err_so_far().size();
    ::kill(seen.back(), SIGKILL);
    do {  // until the agent has logged whether it is started again
      std::this_thread::sleep_for(milliseconds(1));
      logged = job.err_so_far();
    } while (job.running() && logged.find("started again", killed) == logged.npos &&
             steady_clock::now() < limit);
  }
  ASSERT_TRUE(printed(job, given_up));
  ASSERT_TRUE(printed(job, "1 of 2 workers continue"));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
}

// Bad data or flags are the same again: the whole job ends.
TEST_F(ElasticTest, WhatIsWrongEndsTheJob) {
  Process job(command("job", 20, {"--train_file", path("none.json").native()}));
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("root failure: rank"));
  EXPECT_THAT(result.err, HasSubstr("none.json"));
}

}  // namespace
}  // namespace tandem::testing
