#include "tandem/membership/catch_up.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::membership {
namespace {

using std::chrono::milliseconds;

const std::vector<Peer> kSenders{{1, "a"}, {2, "b"}};

std::size_t chunks_asked(const std::vector<CatchUp::Request>& requests) {
  std::size_t result = 0;
  for (const CatchUp::Request& request : requests) result += request.fetch.chunks.size();
  return result;
}

TEST(CatchUp, FetchesAWindowFromEverySender) {
  CatchUp learner({.chunks = 10, .window = 2});
  learner.job_at({1, 1}, 5, kSenders);
  const std::vector<CatchUp::Request> first = learner.requests(milliseconds(0));
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].fetch.chunks, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(first[1].fetch.chunks, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(chunks_asked(learner.requests(milliseconds(1))), 0u);
  EXPECT_TRUE(learner.take_chunk(milliseconds(2), 0, 5));
  EXPECT_EQ(chunks_asked(learner.requests(milliseconds(2))), 1u);
}

TEST(CatchUp, IsLevelWhenAllChunksAreOfOneStep) {
  CatchUp learner({.chunks = 2});
  learner.job_at({1, 1}, 5, kSenders);
  EXPECT_TRUE(learner.take_chunk(milliseconds(0), 0, 5));
  EXPECT_FALSE(learner.whole());
  EXPECT_TRUE(learner.take_gradient(milliseconds(0), 0, 6));
  EXPECT_FALSE(learner.take_gradient(milliseconds(0), 1, 6));  // there is no chunk yet
  EXPECT_TRUE(learner.take_chunk(milliseconds(0), 1, 6));
  EXPECT_TRUE(learner.whole());
  EXPECT_EQ(learner.step(), 6u);
}

TEST(CatchUp, DropsWhatItCannotUse) {
  CatchUp learner({.chunks = 1});
  learner.job_at({1, 1}, 5, kSenders);
  EXPECT_TRUE(learner.take_chunk(milliseconds(0), 0, 5));
  EXPECT_FALSE(learner.take_chunk(milliseconds(0), 0, 5));         // twice
  EXPECT_FALSE(learner.take_gradient(milliseconds(0), 0, 5));      // is in it
  EXPECT_FALSE(learner.take_gradient(milliseconds(0), 0, 7));      // one is missing
  EXPECT_FALSE(learner.take_chunk(milliseconds(0), 9, 5));         // no such chunk
  EXPECT_EQ(chunks_asked(learner.requests(milliseconds(0))), 1u);  // so it is fetched again
  EXPECT_TRUE(learner.take_chunk(milliseconds(0), 0, 7));
}

TEST(CatchUp, TurnsToAnotherSenderWhenOneIsSilent) {
  CatchUp learner({.chunks = 1, .patience = milliseconds(100)});
  learner.job_at({1, 1}, 5, kSenders);
  const auto asked = [&](milliseconds now) {
    for (const CatchUp::Request& request : learner.requests(now)) {
      if (!request.fetch.chunks.empty()) return request.to.id;
    }
    return NodeId{0};
  };
  EXPECT_EQ(asked(milliseconds(0)), 1u);
  EXPECT_EQ(asked(milliseconds(99)), 0u);
  EXPECT_EQ(asked(milliseconds(100)), 2u);
}

TEST(CatchUp, FetchesAgainWhatIsAheadOfALaterView) {
  CatchUp learner({.chunks = 2});
  learner.job_at({1, 1}, 5, kSenders);
  learner.take_chunk(milliseconds(0), 0, 6);
  learner.take_chunk(milliseconds(0), 1, 5);
  learner.job_at({2, 1}, 5, kSenders);  // whoever applied step 6 is dead
  EXPECT_TRUE(learner.take_chunk(milliseconds(0), 0, 5));
  EXPECT_TRUE(learner.whole());
}

TEST(CatchUp, RefusesNothingToLearn) { EXPECT_THROW(CatchUp({.chunks = 0}), InvalidArgument); }

}  // namespace
}  // namespace tandem::membership
