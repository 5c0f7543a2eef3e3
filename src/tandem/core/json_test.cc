#include "tandem/core/json.h"

#include <gtest/gtest.h>

#include <string>

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
