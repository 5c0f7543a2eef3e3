// Elastic jobs on two hosts that lose a worker or a host outside of training, or all workers at
// once, and that grow and shrink.
#include "multihost/elastic_hosts.h"

namespace tandem::testing {
namespace {

struct Loss {
  const char* name;
  const char* when;  // as soon as rank 0 has printed this
  bool rank0;        // whether its host is lost, or the other one
};

void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.name; }

class LostAfterTraining : public ElasticHosts, public ::testing::WithParamInterface<Loss> {
 protected:
  // Evaluation and prediction of so many rows take some seconds.
  Words long_evaluation() {
    use(demo_task("run_ner"));
    const std::string rows = read_file(path("ner_rows.json"));  // which the task has made
    std::string many;
    for (int i = 0; i < 30; ++i) many += rows;
    const std::string file = path("many_rows.json").native();
    write_file(file, many);
    return {"--do_eval",
            "--validation_file",
            file,
            "--do_predict",
            "--test_file",
            file,
            "--per_device_eval_batch_size",
            "1",
            "--logging_steps",
            "20"};
  }
};

// A host is lost for good while the job evaluates, predicts or saves. The other one brings it to
// its end, with the files of an undisturbed job.
TEST_P(LostAfterTraining, DoesNotDisturbTheOthers) {
  const Loss& loss = GetParam();
  const Words flags = long_evaluation();
  begin({.flags = flags});
  ASSERT_TRUE(both_compute(0));
  const int main = node_that_logs(loss.when);
  ASSERT_GE(main, 0);
  const int lost = loss.rank0 ? main : 1 - main;
  lose(lost);
  agents_[lost]->wait();
  const ProcessResult left = end(1 - lost);
  EXPECT_THAT(left.err, ::testing::HasSubstr("1 of 2 workers continue"));
  run_calm_job(kSteps, flags);
  expect_equal_results("calm", "job");
}

INSTANTIATE_TEST_SUITE_P(
    Hosts, LostAfterTraining,
    ::testing::Values(Loss{"Rank0sInTheEvaluation", "Running Evaluation", true},
                      Loss{"AnotherInThePrediction", "Running Prediction", false},
                      Loss{"Rank0sWhileSaving", "Saving model checkpoint to", true}),
    [](const auto& test) { return test.param.name; });

// Two of three hosts are lost for good, at once and with certainty. The third one finishes the job.
TEST_F(ElasticHosts, TwoOfThreeAreLostAtOnce) {
  add_third_host();
  const Nodes nodes{.count = "1:3", .flags = {"--logical_shards", "4"}};
  for (const int node : {0, 1, 2}) agents_[node] = agent(node, nodes);
  ASSERT_TRUE(printed(*agents_[2], "3 of 3 workers continue"));
  lose(0);
  lose(1);
  EXPECT_THAT(end(2).err, ::testing::HasSubstr("1 of 3 workers continue"));
  expect_bits_of_calm_job(kSteps, nodes.flags);
}

// No process is left that computes. New workers map the state that both hosts hold.
TEST_F(ElasticHosts, AllWorkersDieAtOnce) {
  begin({.count = "2"});
  ASSERT_TRUE(both_compute(0));
  signal_worker(0, "KILL");
  signal_worker(1, "KILL");
  for (const int node : {0, 1}) EXPECT_THAT(end(node).err, ::testing::HasSubstr("SIGKILL"));
  expect_bits_of_calm_job(kSteps);
}

// One worker, four on two hosts, two, three.
TEST_F(ElasticHosts, AJobGrowsAndShrinks) {
  const Nodes nodes{.steps = 3 * kSteps,
                    .flags = {"--logical_shards", "4"},
                    .agent_flags = {"--nproc-per-node", "2"}};
  agents_[0] = agent(0, nodes);
  ASSERT_TRUE(printed(*agents_[0], "2 of 4 workers continue"));
  resize(0, 1);
  ASSERT_TRUE(printed(*agents_[0], "1 of 4 workers continue"));
  resize(0, 2);
  agents_[1] = agent(1, nodes);
  ASSERT_TRUE(printed(*agents_[0], "4 of 4 workers continue"));
  const std::size_t pairs = times(0, "2 of 4 workers continue");
  resize(0, 1);
  resize(1, 1);
  ASSERT_TRUE(logs_again(0, "2 of 4 workers continue", pairs));
  const std::size_t threes = times(0, "3 of 4 workers continue");
  resize(1, 2);
  ASSERT_TRUE(logs_again(0, "3 of 4 workers continue", threes));
  end(0);
  end(1);
  expect_bits_of_calm_job(nodes.steps, nodes.flags);
}

}  // namespace
}  // namespace tandem::testing
