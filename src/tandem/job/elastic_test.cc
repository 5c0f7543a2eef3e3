#include "tandem/job/elastic.h"

#include <gtest/gtest.h>

#include "tandem/core/error.h"

namespace tandem::job {
namespace {

// Weights that a joiner received, and nobody left who knows what they are.
TEST(ElasticProgress, WeightsOfAStepNeedWhatLedThere) {
  Progress known;
  known.trainer = "{}";
  EXPECT_THROW(require_progress({}, 12, false), Error);
  EXPECT_NO_THROW(require_progress(known, 12, false));
  EXPECT_NO_THROW(require_progress({}, 0, false));  // the job begins
  EXPECT_NO_THROW(require_progress({}, 12, true));  // a checkpoint will replace them
}

}  // namespace
}  // namespace tandem::job
