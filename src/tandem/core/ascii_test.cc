#include "tandem/core/ascii.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::ElementsAre;

TEST(AsciiLower, LeavesBytesBeyondAscii) {
  EXPECT_EQ(ascii_lower("AZaz[@0\xC3\x84"), "azaz[@0\xC3\x84");
}

TEST(Split, KeepsEmptyParts) {
  constexpr std::string_view kText = ",a,,b,";
  EXPECT_THAT(split(kText, ','), ElementsAre("", "a", "", "b", ""));
  EXPECT_THAT(split(kText, ':'), ElementsAre(kText));
  EXPECT_THAT(split(std::string_view(), ','), ElementsAre(""));
}

TEST(NamesOfList, LeaveEmptyOnesOut) {
  EXPECT_THAT(names_of_list(",eth0,,lo"), ElementsAre("eth0", "lo"));
  EXPECT_THAT(names_of_list(""), ElementsAre());
}

}  // namespace
}  // namespace tandem
