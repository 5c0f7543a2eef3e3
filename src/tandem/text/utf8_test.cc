// Tests of UTF-8 handling.
#include "tandem/text/utf8.h"

#include <gtest/gtest.h>

#include <vector>

#include "tandem/text/json_text.h"

namespace tandem::text {
namespace {

TEST(Utf8, EveryCodePointSurvivesTheRoundTrip) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string bytes;
    append_utf8(c, bytes);
    ASSERT_FALSE(find_invalid_utf8(bytes).has_value()) << std::hex << std::uint32_t{c};
    std::size_t at = 0;
    ASSERT_EQ(next_code_point(bytes, at), c);
    ASSERT_EQ(at, bytes.size());
    ASSERT_EQ(count_code_points(bytes), 1u);
  }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  const std::vector<std::pair<std::string, std::size_t>> cases = {
      {"\x80", 0},
      {"abcdefghij\xff", 10},
      {"a\xc0\xaf", 1},         // overlong
      {"é\xe0\x80\xaf", 2},     // overlong
      {"ab\xed\xa0\x80", 2},    // surrogate
      {"\xf4\x90\x80\x80", 0},  // above U+10FFFF
      {"\xf0\x80\x80\x80", 0},  // overlong
      {"12345678\xe2\x82", 8},  // truncated
      {"\xf0\x9f\x98", 0},      // truncated
      {"\xe2\x28\xa1", 0},      // no continuation
  };
  for (const auto& [text, position] : cases) {
    EXPECT_EQ(find_invalid_utf8(text), position) << text;
  }
  EXPECT_EQ(find_invalid_utf8("plain ascii and ünïcödé \xf0\x9f\x98\x80"), std::nullopt);
}

TEST(Utf8, NothingBehindATruncatedSequenceIsRead) {
  for (const std::string_view bytes : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    for (std::size_t length = 1; length < bytes.size(); ++length) {
      // Exactly as large as the text: the address sanitizer, or the assertions of the library, see
      // one byte more.
      const std::vector<char> exact(bytes.begin(),
                                    bytes.begin() + static_cast<std::ptrdiff_t>(length));
      const std::string_view text(exact.data(), exact.size());
      std::size_t at = 0;
      next_code_point(text, at);
      EXPECT_EQ(at, length);
      EXPECT_EQ(lstrip(text), text);
      EXPECT_EQ(strip(text), text);
    }
  }
}

TEST(Utf8, BytesThatAreNotUtf8AreNoSpaces) {
  for (const std::string_view text : {"\x80 a", "a \x80", "\x80", "\xc2 ", "\x80\x85"}) {
    EXPECT_EQ(lstrip(text), text);
    EXPECT_EQ(strip(text), text == "\xc2 " ? "\xc2" : text);
  }
}

TEST(Utf8, SlicesByCodePoints) {
  const std::string_view text = "aé\xf0\x9f\x98\x80z";
  EXPECT_EQ(count_code_points(text), 4u);
  EXPECT_EQ(slice_code_points(text, 1, 3), "é\xf0\x9f\x98\x80");
  EXPECT_EQ(slice_code_points(text, 3, 100), "z");
  EXPECT_EQ(slice_code_points(text, 4, 5), "");
  EXPECT_EQ(slice_code_points(text, 2, 2), "");
  EXPECT_EQ(slice_code_points(text, 3, 1), "");
}

TEST(Utf8, StripsWhatPythonStrips) {
  EXPECT_EQ(strip(" \t\u00a0\u3000\x1c x y\u200b\u2003\n"),
            "x y\u200b");  // U+200B is not white space
  EXPECT_EQ(lstrip("\u0085\u2028q \n"), "q \n");
  EXPECT_EQ(strip(" \u3000 "), "");
  EXPECT_EQ(strip(""), "");
}

TEST(JsonText, NamesLineAndColumn) {
  EXPECT_EQ(describe_json_error("{\"a\": [1, 2]}"), "");
  const std::string error = describe_json_error("{\"a\":\n  [1,\n   oops]}");
  EXPECT_TRUE(error.starts_with("line 3, column ")) << error;
  EXPECT_TRUE(
      describe_json_error("[\"\xff\"]").starts_with("line 1, column 3 (byte 2): not UTF-8"));
  EXPECT_NE(describe_json_error("{\"a\": 1"), "");
  EXPECT_NE(describe_json_error(""), "");
}

// Errors of the library's parser are of two kinds, and only one of them begins with a place.
TEST(JsonText, GivesTheReasonAlone) {
  const std::string syntax = describe_json_error("{]");
  EXPECT_TRUE(syntax.starts_with("line 1, column 2 (byte 1): syntax error while parsing"))
      << syntax;
  EXPECT_EQ(describe_json_error("{\"a\":\n 1e999}"),
            "line 2, column 6 (byte 11): number overflow parsing '1e999'");
  EXPECT_EQ(describe_json_error("[\"a: b\", 1e999]").find("json.exception"), std::string::npos);
}

}  // namespace
}  // namespace tandem::text
