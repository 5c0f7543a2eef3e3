#include "tandem/core/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tandem/core/whole_number.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

TEST(OrderedJson, IsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "[]", "{}", R"("é")", "[1, -2, 3.5, true, false, null, 18446744073709551615]",
        R"({"z": {"b": [{"a": 1}, [], {}]}, "a": "x", "m": {"z": 1, "a": 2}})",
        R"({"a": 1, "b": {"x": [2]}, "a": {"c": 3}, "b": 4})", R"([[[{"a": [[]]}], 1], 2])"}) {
    EXPECT_EQ(parse_ordered_json(text).dump(), Json::parse(text).dump()) << text;
  }
}

TEST(OrderedJson, FailsAsTheLibraryDoes) {
  for (const char* text : {"", "{", "[1,]", "{\"a\": 1e999}", "\"\xff\"", "[1] 2", "{1: 2}"}) {
    std::string expected = "nothing", got = "nothing";
    try {
      expected += Json::parse(text).dump();
    } catch (const Json::exception& error) {
      expected = error.what();
    }
    try {
      got += parse_ordered_json(text).dump();
    } catch (const Json::exception& error) {
      got = error.what();
    }
    EXPECT_EQ(got, expected) << text;
  }
}

TEST(WholeNumber, IsOneThatTheTypeHolds) {
  const auto read = [](const char* text) { return whole_number<std::int64_t>(Json::parse(text)); };
  EXPECT_EQ(read("-7"), -7);
  EXPECT_EQ(read("3.9"), 3);
  EXPECT_EQ(read("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read("-9.223372036854775808e18"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read("9.223372036854774e18"), 9223372036854773760);
  for (const char* text : {"9.223372036854775808e18", "18446744073709551615", "-1e19", "4e44",
                           "-1e300", "\"7\"", "null", "[]"})
    EXPECT_THROW(read(text), Json::exception) << text;
  EXPECT_EQ(whole_number<int>(Json::parse("-2147483648.9")), -2147483648);
  EXPECT_EQ(whole_number<std::uint8_t>(Json::parse("255.5")), 255);
  EXPECT_THROW(whole_number<int>(Json::parse("2147483648")), Json::exception);
  EXPECT_THROW(whole_number<std::uint64_t>(Json::parse("-1")), Json::exception);
}

std::string nested(std::size_t depth) {
  return std::string(depth, '[') + "\"]\\\"[\"" + std::string(depth, ']');
}

TEST(Json, NestsSoDeepAndNoDeeper) {
  const std::string deepest = nested(kMaxJsonDepth), deeper = nested(kMaxJsonDepth + 1);
  EXPECT_EQ(parse_json(deepest).dump(), deepest);
  EXPECT_EQ(parse_ordered_json(deepest).dump(), deepest);
  EXPECT_EQ(parse_json("[" + nested(3) + "," + nested(kMaxJsonDepth - 1) + "]").size(), 2u);
  EXPECT_THROW(parse_json(deeper), nlohmann::json::exception);
  EXPECT_THROW(parse_ordered_json(deeper), nlohmann::json::exception);
  EXPECT_TRUE(try_parse_json(deeper).is_discarded());
  EXPECT_TRUE(try_parse_ordered_json(deeper).is_discarded());
  EXPECT_TRUE(try_parse_json("[1").is_discarded());
  // Copied and written by recursion, these would end the program.
  EXPECT_TRUE(try_parse_json(std::string(3'000'000, '[')).is_discarded());
  EXPECT_TRUE(try_parse_json(nested(1'000'000)).is_discarded());
}

// With a search for each name this takes minutes.
TEST(OrderedJson, ManyNamesTakeTimeInProportion) {
  constexpr std::size_t kNames = 400000;
  std::string text = "{\"0\": 0";
  for (std::size_t i = 1; i < kNames; ++i)
    text += ", \"" + std::to_string(i) + "\": " + std::to_string(i);
  const Json json = parse_ordered_json(text + "}");
  EXPECT_EQ(json.size(), kNames);
  EXPECT_EQ(json.back(), kNames - 1);
}

}  // namespace
}  // namespace tandem
