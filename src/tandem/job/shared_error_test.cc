#include "tandem/job/shared_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/core/interruption.h"

namespace tandem::job {
namespace {

using ::testing::Each;

// Two ranks do the same work, and each ends with an Expected.
template <class Expected>
void expect_both_throw(const std::function<void(int rank)>& work) {
  const auto errors = comm::testing::run_threads(2, [&](comm::Communicator& communicator) {
    EXPECT_THROW(run_with_shared_errors(communicator, [&] { work(communicator.rank()); }),
                 Expected);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(RunWithSharedErrors, WhatAllFindIsShared) {
  expect_both_throw<SharedError>([](int) { raise<DataError>("row 7 is broken"); });
}

TEST(RunWithSharedErrors, WhatTheyFindApartIsTheirs) {
  expect_both_throw<DataError>([](int rank) { raise<DataError>("row {} is broken", rank); });
}

// SIGTERM during the load of a model is not an error of the model: the job ends with 143, not with
// 1.
TEST(RunWithSharedErrors, ARequestToStopPassesAsItIs) {
  expect_both_throw<Interrupted>([](int) { raise<Interrupted>("asked to stop"); });
}

}  // namespace
}  // namespace tandem::job
