// The names of jobs and the places where they write, without ranks and files; those are
// tests/e2e/run_test.cc's.
#include "tandem/job/output_place.h"

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

TEST(OutputPlace, KnowsTheSamePlaceAtAnotherTime) {
  EXPECT_TRUE(only_dates_differ("/v/output_20260101_120000", "/v/output_20260102_235959"));
  EXPECT_TRUE(only_dates_differ("/v/output_20260101_120000/", "/v/output_20260102_235959"));
  EXPECT_TRUE(only_dates_differ("/v/run-2026-01-01", "/v/./run-2026-11-24"));
  EXPECT_FALSE(only_dates_differ("/v/output_1", "/v/output_2"));
  EXPECT_FALSE(only_dates_differ("/v/output_20260101", "/w/output_20260102"));
  EXPECT_FALSE(only_dates_differ("/v/a_20260101", "/v/b_20260102"));
  EXPECT_FALSE(only_dates_differ("/v/output", "/v/output_20260102"));
}

}  // namespace
}  // namespace tandem::job
