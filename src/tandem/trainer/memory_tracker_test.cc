#include "tandem/trainer/memory_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/sanitizers.h"
#include "tandem/core/buffer.h"
#include "tandem/core/json.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;
using Stage = MemoryTracker::Stage;

constexpr std::int64_t kMiB = 1 << 20;
// Memory that a thread, the allocator and the kernel's counters per thread may add or hide.
constexpr std::int64_t kSlack = 8 * kMiB;

Buffer touched(std::size_t bytes) {
  Buffer buffer(bytes);
  for (std::size_t i = 0; i < bytes; i += 4096) buffer.data()[i] = std::byte{1};
  return buffer;
}

std::vector<std::string> keys_of(const ordered_json& metrics) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : metrics.items()) keys.push_back(key);
  return keys;
}

TEST(MemoryTracker, WhatStaysIsAllocatedWhatWentIsThePeak) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer's own memory is counted too";
  MemoryTracker tracker(true);
  tracker.start(Stage::kInit);
  tracker.stop(Stage::kInit);
  tracker.start(Stage::kTrain);
  const Buffer kept = touched(64 * kMiB);
  touched(128 * kMiB);
  ordered_json metrics;
  tracker.stop_and_report(Stage::kTrain, metrics);
  EXPECT_THAT(keys_of(metrics),
              ::testing::ElementsAre("init_mem_cpu_alloc_delta", "init_mem_cpu_peaked_delta",
                                     "train_mem_cpu_alloc_delta", "train_mem_cpu_peaked_delta",
                                     "before_init_mem_cpu"));
  EXPECT_NEAR(metrics["train_mem_cpu_alloc_delta"].get<double>(), 64.0 * kMiB, kSlack);
  EXPECT_NEAR(metrics["train_mem_cpu_peaked_delta"].get<double>(), 128.0 * kMiB, kSlack);
  EXPECT_GT(metrics["before_init_mem_cpu"].get<std::int64_t>(), kMiB);
}

TEST(MemoryTracker, AStageInsideAnotherIsPartOfIt) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer's own memory is counted too";
  MemoryTracker tracker(true);
  tracker.start(Stage::kTrain);
  tracker.start(Stage::kEval);
  const Buffer kept = touched(32 * kMiB);
  ordered_json inner = ordered_json::object();
  tracker.stop_and_report(Stage::kEval, inner);
  EXPECT_TRUE(inner.empty());
  ordered_json outer;
  tracker.stop_and_report(Stage::kTrain, outer);
  EXPECT_NEAR(outer["train_mem_cpu_alloc_delta"].get<double>(), 32.0 * kMiB, kSlack);
  // Init was not measured, and later stages report only themselves.
  tracker.start(Stage::kPredict);
  ordered_json last;
  tracker.stop_and_report(Stage::kPredict, last);
  EXPECT_THAT(keys_of(last),
              ::testing::ElementsAre("test_mem_cpu_alloc_delta", "test_mem_cpu_peaked_delta"));
}

TEST(MemoryTracker, SwitchedOffItReportsNothing) {
  MemoryTracker tracker(false);
  tracker.start(Stage::kTrain);
  ordered_json metrics = ordered_json::object();
  tracker.stop_and_report(Stage::kTrain, metrics);
  EXPECT_TRUE(metrics.empty());
}

}  // namespace
}  // namespace tandem::trainer
