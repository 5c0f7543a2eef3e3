// The names of jobs and their output directories, without ranks and files; tests/e2e/run_test.cc
// covers those.
#include "tandem/job/output_directory.h"

#include <gtest/gtest.h>

namespace tandem::job {
namespace {

std::string name_of(const std::string& host, bool pod = true, const std::string& run = "") {
  std::map<std::string, std::string, std::less<>> values;
  if (pod) values["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
  if (!run.empty()) values["TORCHELASTIC_RUN_ID"] = run;
  return job_name(Environment(values), host).value_or("(none)");
}

TEST(JobName, ComesFromTheRunOrFromThePod) {
  EXPECT_EQ(name_of("qa-worker-3"), "qa");
  EXPECT_EQ(name_of("qa-master-0"), "qa");
  EXPECT_EQ(name_of("qa-node-0-3"), "qa");
  EXPECT_EQ(name_of("qa-3.qa.default.svc.cluster.local"), "qa");
  EXPECT_EQ(name_of("qa-2026-worker-0"), "qa-2026");
  EXPECT_EQ(name_of("qa-2026-3"), "qa-2026");
  EXPECT_EQ(name_of("qa-worker-3", true, "run7"), "run7");
  EXPECT_EQ(name_of("qa-worker-3", true, "none"), "qa");
}

TEST(JobName, IsNotGuessed) {
  EXPECT_EQ(name_of("qa-worker-3", false), "(none)");
  EXPECT_EQ(name_of("laptop"), "(none)");
  EXPECT_EQ(name_of("deployment-7f9c-x2k"), "(none)");
  EXPECT_EQ(name_of("-3"), "(none)");
}

TEST(OutputDirectory, KnowsTheSamePlaceAtAnotherTime) {
  EXPECT_TRUE(only_dates_differ("/v/output_20260101_120000", "/v/output_20260102_235959"));
  EXPECT_TRUE(only_dates_differ("/v/output_20260101_120000/", "/v/output_20260102_235959"));
  EXPECT_TRUE(only_dates_differ("/v/run-2026-01-01", "/v/./run-2026-11-24"));
  EXPECT_TRUE(only_dates_differ("/v/Nov27_13-49-09_host", "/v/Nov28_00-00-01_host"));
  EXPECT_TRUE(only_dates_differ("/v/20260101", "/v/20260102"));
  EXPECT_TRUE(only_dates_differ("/v/a-20260101235959", "/v/a-20260102000000"));
  EXPECT_TRUE(only_dates_differ("/v/a-2026-01-01T23:59:59-b", "/v/a-2026-01-02T00:00:00-b"));
  EXPECT_TRUE(only_dates_differ("/v/a_27-11-2026", "/v/a_28-11-2026"));
  EXPECT_TRUE(only_dates_differ("/v/a_11.28.2026_1200", "/v/a_11.29.2026_1201"));
  EXPECT_TRUE(only_dates_differ("/v/a_27Nov2026", "/v/a_01Dec2026"));
  EXPECT_TRUE(only_dates_differ("/v/run1_1764240546", "/v/run1_1764240999"));
  EXPECT_FALSE(only_dates_differ("/v/output_1", "/v/output_2"));
  EXPECT_FALSE(only_dates_differ("/v/output_20260101", "/w/output_20260102"));
  EXPECT_FALSE(only_dates_differ("/v/a_20260101", "/v/b_20260102"));
  EXPECT_FALSE(only_dates_differ("/v/output", "/v/output_20260102"));
  EXPECT_FALSE(only_dates_differ("/v/output_20260102", "/v/output_20260102"));
}

// Numbers that distinguish jobs.
TEST(OutputDirectory, TakesNoOtherNumberForADate) {
  EXPECT_FALSE(only_dates_differ("/v/seed123456", "/v/seed654321"));
  EXPECT_FALSE(only_dates_differ("/v/seed123456_20260101", "/v/seed654321_20260101"));
  EXPECT_FALSE(only_dates_differ("/v/seed12345678", "/v/seed87654321"));
  EXPECT_FALSE(only_dates_differ("/v/lr_00001000", "/v/lr_00002000"));
  EXPECT_FALSE(only_dates_differ("/v/20261301", "/v/20261302"));  // no month 13
  EXPECT_FALSE(only_dates_differ("/v/20260101_1", "/v/20260101_2"));
  EXPECT_FALSE(only_dates_differ("/v/20260101_240000", "/v/20260101_250000"));
  EXPECT_FALSE(only_dates_differ("/v/a120260101", "/v/a120260102"));  // nine digits
  EXPECT_FALSE(only_dates_differ("/v/squad_384_128", "/v/squad_512_128"));
  EXPECT_FALSE(only_dates_differ("/v/job-123456-1", "/v/job-654321-1"));
}

}  // namespace
}  // namespace tandem::job
