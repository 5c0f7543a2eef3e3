#include "tandem/job/agreed_inputs.h"

#include <gtest/gtest.h>

namespace tandem::job {
namespace {

TEST(Shortened, KeepsShortLinesAsTheyAre) {
  EXPECT_EQ(shortened("seed=42\nconfig.json act=\"gelu\"\n"),
            "seed=42\nconfig.json act=\"gelu\"\n");
  EXPECT_EQ(shortened(""), "");
}

TEST(Shortened, LongLinesThatDifferStillDo) {
  const std::string labels = "config.json id2label=" + std::string(5000, 'x');
  const std::string one = shortened(labels + "a\n");
  EXPECT_LT(one.size(), 300u);
  EXPECT_EQ(one.rfind("config.json id2label=xxx", 0), 0u) << one;
  EXPECT_EQ(one, shortened(labels + "a\n"));
  EXPECT_NE(one, shortened(labels + "b\n"));
}

TEST(Shortened, FitsIntoAMessage) {
  std::string lines;
  for (int i = 0; i < 10000; ++i) lines += "name" + std::to_string(i) + "=value\n";
  const std::string kept = shortened(lines);
  EXPECT_LE(kept.size(), 32768u);
  EXPECT_GT(kept.size(), 30000u);
  EXPECT_EQ(lines.substr(0, kept.size()), kept);
}

}  // namespace
}  // namespace tandem::job
