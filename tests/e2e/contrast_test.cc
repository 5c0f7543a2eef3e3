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

}  // namespace
}  // namespace tandem::testing
