// Tests of packing: the samples of TRL's pack_dataset().
#include "tandem/tasks/supervised/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace tandem::supervised {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Lengths = std::vector<std::size_t>;
using Sample = std::vector<std::uint32_t>;

TEST(Packing, BestFitDecreasing) {
  EXPECT_THAT(pack({}, 4), IsEmpty());
  EXPECT_THAT(pack(Lengths{4, 2, 3, 1}, 4), ElementsAre(Sample{0}, Sample{2, 3}, Sample{1}));
  // The least room that is enough: the 2 goes to the 5 of 8, not to the 4.
  EXPECT_THAT(pack(Lengths{4, 2, 5}, 8), ElementsAre(Sample{2, 1}, Sample{0}));
  // Equal lengths in order; of samples with the same room the oldest.
  EXPECT_THAT(pack(Lengths{3, 3, 1, 1, 3}, 4), ElementsAre(Sample{0, 2}, Sample{1, 3}, Sample{4}));
}

TEST(Packing, EverySequenceOnce) {
  Lengths lengths;
  for (std::size_t i = 0; i < 500; ++i) lengths.push_back(1 + i * i % 97);
  std::set<std::uint32_t> seen;
  for (const Sample& sample : pack(lengths, 100)) {
    std::size_t total = 0;
    for (const std::uint32_t i : sample) {
      total += lengths[i];
      EXPECT_TRUE(seen.insert(i).second) << i;
    }
    EXPECT_LE(total, 100u);
  }
  EXPECT_EQ(seen.size(), lengths.size());
}

}  // namespace
}  // namespace tandem::supervised
