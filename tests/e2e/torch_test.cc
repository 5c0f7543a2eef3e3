// tandem and the real torch.distributed: its programs under `tandem run`, our client of TCPStore
// with its server, and tandem's jobs under the real torchrun. All of them need torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "e2e/job.h"
#include "tandem/rendezvous/torch_store.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

// The Python that has torch.distributed: that of the venv for comparisons, or the system's.
std::string python_with_torch() {
  const auto venv =
      std::filesystem::path(TANDEM_SOURCE_DIR) / "build" / "test-data" / "venv" / "bin" / "python";
  const char* chosen = std::getenv("TANDEM_PARITY_PYTHON");
  for (const std::string& python :
       {std::string(chosen == nullptr ? "" : chosen), venv.string(), find_program("python3")}) {
    if (!python.empty() && std::filesystem::exists(python) &&
        run({python, "-c",
             "import torch.distributed as d; assert d.is_gloo_available() and hasattr(d.Store, "
             "'queue_push')"})
                .exit_code == 0) {
      return python;
    }
  }
  return "";
}

class WithTorch : public JobTest {
 protected:
  void SetUp() override {
    python_ = python_with_torch();
    if (python_.empty())
      GTEST_SKIP() << "needs a Python with torch 2.8 or newer (pip install torch)";
  }
  Variables variables() const { return {{"PYTHON_EXEC", python_}, {"OMP_NUM_THREADS", "1"}}; }
  // Polls until the condition holds, for two minutes.
  template <class Condition>
  static bool comes_true(const Condition& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }
  std::string python_;
};

constexpr const char* kDdp = R"(import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
ddp(torch.ones(3, 4)).sum().backward()
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"sum {x.item()} attempt {attempt}", flush=True)
if attempt == "0" and dist.get_rank() == 1: sys.exit(5)
dist.barrier()
dist.destroy_process_group()
)";

TEST_F(WithTorch, ProgramsRunUnderItsTorchrun) {
  write_file(path("ddp.py"), kDdp);
  const auto one = run({kProgram, "run", "--standalone", "--nproc-per-node", "2", "--max-restarts",
                        "1", path("ddp.py").string()},
                       variables(), 300s);
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, AllOf(HasSubstr("sum 3.0 attempt 0"), HasSubstr("sum 3.0 attempt 1")));
}

constexpr const char* kServer = R"(import sys, time, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
while not store.check(["done"]): time.sleep(0.02)
assert store.get("of ours") == b"12"
)";

// Our client, request by request, against torch's own server. Its keys begin with "/" there.
TEST_F(WithTorch, OurClientUsesEveryRequestOfItsStore) {
  write_file(path("server.py"), kServer);
  Process server({python_, path("server.py").string()}, variables());
  ASSERT_TRUE(comes_true([&] {
    return server.out_so_far().find('\n') != std::string::npos || !server.running();
  })) << server.err_so_far();
  rendezvous::TorchStore store("127.0.0.1", std::stoi(server.out_so_far()), net::Deadline(20s));
  store.set("/of ours", "1");
  store.append("/of ours", "2");
  EXPECT_EQ(store.get("/of ours", 5s), "12");
  EXPECT_EQ(store.add("sum", 5), 5);
  EXPECT_EQ(store.add("sum", -2), 3);
  EXPECT_EQ(store.compare_set("b", "", "new"), "new");
  EXPECT_EQ(store.compare_set("b", "old", "x"), "new");
  EXPECT_EQ(store.compare_set("b", "new", "x"), "x");
  const std::string both[] = {"sum", "b"};
  EXPECT_TRUE(store.check(both));
  const std::string absent[] = {"absent"};
  EXPECT_FALSE(store.check(absent));
  const std::string values[] = {"v", std::string(1 << 20, 'y')};
  store.multi_set(both, values);
  EXPECT_EQ(store.multi_get(both), (std::vector<std::string>{"v", values[1]}));
  EXPECT_EQ(store.ping(77), 77U);
  store.queue_push("q", "first");
  store.queue_push("q", "second");
  EXPECT_EQ(store.queue_length("q"), 2);
  EXPECT_EQ(store.queue_pop("q"), "first");
  EXPECT_EQ(store.queue_pop("none"), std::nullopt);
  const auto keys = store.list_keys();
  EXPECT_THAT(keys, ::testing::IsSupersetOf({"/of ours", "sum", "b"}));
  EXPECT_GE(store.num_keys(), 3);
  EXPECT_TRUE(store.wait(both, 5s));
  EXPECT_FALSE(store.wait(absent, 50ms));
  EXPECT_FALSE(store.barrier("alone", 2, 50ms));
  EXPECT_TRUE(store.barrier("one", 1, 5s));
  EXPECT_TRUE(store.remove("sum"));
  EXPECT_FALSE(store.remove("sum"));
  store.set("/done", "1");
  const auto result = server.wait(60s);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// Processes of this test's folder that run a job: their command lines name its output.
std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string line((std::istreambuf_iterator<char>(file)), {});
    const bool is_job = line.starts_with(kProgram) && line.find(text) != std::string::npos;
    if (is_job) found.push_back(std::stoi(name));
  }
  return found;
}

// The real torchrun on two nodes; one rank is killed in the middle, and torchrun starts all again.
TEST_F(WithTorch, OwnJobsRunUnderTheRealTorchrun) {
  run_ok(train_command("reference",
                       {"--logical_shards", "2", "--max_steps", "300", "--save_steps", "100"}));
  const Words job =
      train_command("job", {"--logical_shards", "2", "--max_steps", "300", "--save_steps", "100"});
  Words command = {python_,
                   "-m",
                   "torch.distributed.run",
                   "--nnodes",
                   "1:2",
                   "--max-restarts",
                   "3",
                   "--rdzv-backend",
                   "c10d",
                   "--rdzv-endpoint",
                   fmt::format("localhost:{}", free_port()),
                   "--rdzv-conf",
                   "last_call_timeout=5",
                   "--no-python"};
  command.insert(command.end(), job.begin(), job.end());
  Process first(command, variables());
  Process second(command, variables());
  ASSERT_TRUE(comes_true([&] {
    return std::filesystem::exists(path("job") / "checkpoint-100") || !first.running();
  })) << first.err_so_far();
  const auto ranks = processes_with(path("job").string());
  ASSERT_EQ(ranks.size(), 2u) << first.err_so_far();
  ::kill(ranks.back(), SIGKILL);
  for (Process* agent : {&first, &second}) {
    const auto result = agent->wait(240s);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
  EXPECT_TRUE(weights("reference") == weights("job"));
}

}  // namespace
}  // namespace tandem::testing
