// A contrast over the whole step has the same bits however it is computed
// (docs/design/0028-contrast-over-the-step.md).
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

class Contrast : public JobTest {
 protected:
  void SetUp() override { use(demo_task("run_embedding")); }

  // 8 shards of 4 rows, with and without whole activations. A rank of 3 has 2 or 3 shards.
  static Words flags(std::size_t piece) {
    Words words = {"--gather_across_devices",
                   "--logical_shards",
                   "8",
                   "--max_steps",
                   "3",
                   "--gradient_accumulation_steps",
                   "1",
                   "--overwrite_output_dir"};
    if (piece > 0) words.insert(words.end(), {"--mini_batch_size", std::to_string(piece)});
    return words;
  }
};

// 5 numbers of ranks, 2 of threads, 2 sizes of pieces, 2 carriers: 40 combinations. The last rank
// exchanges through TCP if it counts as a rank of another host, else through shared memory.
TEST_F(Contrast, HasTheSameBitsInAllCombinations) {
  run_ok(train_command("reference", flags(0)));
  for (const int ranks : {2, 3, 4, 5, 8}) {
    for (const int threads : {1, 2}) {
      for (const std::size_t piece : {1u, 3u}) {
        for (const bool network : {false, true}) {
          SCOPED_TRACE(fmt::format("{} ranks of {} threads, pieces of {}, {}", ranks, threads,
                                   piece, network ? "network" : "shared memory"));
          const Variables last = {{"TANDEM_NODE_ID", "second"}};
          const Variables others = {{"TANDEM_NODE_ID", "first"}};
          run_ranks(train_command("other", flags(piece)), ranks, threads,
                    network ? last : Variables(), network ? others : Variables());
          EXPECT_TRUE(weights("reference") == weights("other"));
        }
      }
    }
  }
}

// 4,096 rows in 8 shards: the loss over all of them, whatever the number of ranks.
TEST_F(Contrast, Of4096RowsIsEqualOnOneAndFiveRanks) {
  std::string rows;
  for (int row = 0; row < 4096; ++row)
    rows +=
        json{{"anchor", fmt::format("ship {}", row)}, {"positive", fmt::format("{} sails", row)}}
            .dump() +
        "\n";
  const Words large = {"--train_file",
                       file("large.jsonl", rows),
                       "--max_train_samples",
                       "4096",
                       "--per_device_train_batch_size",
                       "512",
                       "--logical_shards",
                       "8",
                       "--mini_batch_size",
                       "64",
                       "--max_steps",
                       "1",
                       "--gather_across_devices"};
  const ProcessResult result = run_ok(train_command("one", large));
  EXPECT_THAT(output_of(result), ::testing::HasSubstr("negatives: 4095 for each anchor"));
  run_ranks(train_command("five", large), 5);
  EXPECT_TRUE(weights("one") == weights("five"));
}

// Losses that draw negatives or train parameters of their own: the draws depend on seed, epoch and
// row, and checkpoints have the parameters.
class OwnLoss : public JobTest {
 protected:
  // Six shards of 4 rows. The reference stops at step 6; it has a checkpoint of step 4.
  static Words with_shards(const Words& words) {
    return with(words, {"--logical_shards", "6", "--max_steps", "6", "--save_steps", "4",
                        "--eval_strategy", "steps", "--eval_steps", "3"});
  }
  void expect_same_bits(const Words& flags, const Words& other_pieces) {
    const Words words = with_shards(with(flags, eval_flags()));
    run_ok(train_command("reference", words));
    for (const int ranks : {2, 3}) {
      const std::string other = fmt::format("of_{}_ranks", ranks);
      run_ranks(train_command(other, with(words, other_pieces)), ranks, 2);
      expect_equal_results("reference", other);
      EXPECT_EQ(results("reference").at("eval_loss"), results(other).at("eval_loss"));
    }
    run_ranks(
        train_command("resumed", with(words, {"--resume_from_checkpoint",
                                              (path("reference") / "checkpoint-4").native()})),
        2);
    EXPECT_TRUE(weights("reference") == weights("resumed"));
  }
  // Rows of pairs of a sentence's halves.
  DemoTask pairs(const std::string& command) const {
    DemoTask task = embedding();
    task.command = command;
    return task;
  }
};

TEST_F(OwnLoss, InBatchNegativesOfCrossEncodersHaveTheSameBits) {
  use(pairs("run_reranker"));
  expect_same_bits({"--loss", "MultipleNegativesRankingLoss"},
                   {"--loss", "CachedMultipleNegativesRankingLoss", "--mini_batch_size", "3"});
  use(pairs("run_reranker"));
  run_ok(train_command(
      "fewer", with_shards(with({"--loss", "MultipleNegativesRankingLoss", "--num_negatives", "2"},
                                eval_flags()))));
  EXPECT_FALSE(weights("reference") == weights("fewer"));
}

TEST_F(OwnLoss, ClassifiersOfPairsHaveTheSameBits) {
  DemoTask task = pair_classification();
  task.command = "run_embedding";
  task.eval_flags.resize(3);  // without a prediction
  use(task);
  expect_same_bits({"--loss", "SoftmaxLoss"}, {"--mini_batch_size", "3"});
  const auto loss = [&](const std::string& output) {
    return read_file(path(output) / "loss.safetensors");
  };
  EXPECT_TRUE(loss("reference") == loss("resumed"));
  EXPECT_TRUE(loss("reference") == loss("of_3_ranks"));
}

TEST_F(OwnLoss, GuidedContrastsHaveTheSameBits) {
  use(embedding());
  const std::string guide = (kDemo / "model").native();
  for (const Words& gathered : {Words{}, Words{"--gather_across_devices"}}) {
    expect_same_bits(with(gathered, {"--loss", "GISTEmbedLoss", "--guide", guide, "--margin",
                                     "0.05", "--overwrite_output_dir"}),
                     {"--loss", "CachedGISTEmbedLoss", "--mini_batch_size", "3"});
  }
  expect_refused(train_command("refused", {"--loss", "GISTEmbedLoss"}),
                 {"--loss GISTEmbedLoss: found no --guide"});
}

}  // namespace
}  // namespace tandem::testing
