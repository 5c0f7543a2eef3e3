// Tests of the Python-compatible JSON writer; expected strings were printed by Python 3.11.
#include "tandem/core/python_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

TEST(PythonRepr, LikePython) {
  EXPECT_EQ(python_repr(0.0), "0.0");
  EXPECT_EQ(python_repr(-0.0), "-0.0");
  EXPECT_EQ(python_repr(1.0), "1.0");
  EXPECT_EQ(python_repr(-123.25), "-123.25");
  EXPECT_EQ(python_repr(0.1), "0.1");
  EXPECT_EQ(python_repr(0.0001), "0.0001");
  EXPECT_EQ(python_repr(0.00001), "1e-05");
  EXPECT_EQ(python_repr(3e-5), "3e-05");
  EXPECT_EQ(python_repr(2.9951612903225807e-05), "2.9951612903225807e-05");
  EXPECT_EQ(python_repr(1e15), "1000000000000000.0");
  EXPECT_EQ(python_repr(1e16), "1e+16");
  EXPECT_EQ(python_repr(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(python_repr(9007199254740993.0), "9007199254740992.0");
  EXPECT_EQ(python_repr(5e-324), "5e-324");
  EXPECT_EQ(python_repr(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(python_repr(static_cast<double>(4.0238928f)), "4.023892879486084");
  EXPECT_EQ(python_repr(std::nan("")), "nan");
  EXPECT_EQ(python_repr(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(PythonJson, OneLine) {
  const Json value = {{"b", {1, 2.5, nullptr, true}}, {"a", Json::object()}, {"c", Json::array()}};
  EXPECT_EQ(python_json(value), R"({"b": [1, 2.5, null, true], "a": {}, "c": []})");
}

TEST(PythonJson, Indented) {
  const Json value = {{"b", {1, Json::object()}}, {"a", {{"x", 1e-5}}}, {"é", -7}};
  EXPECT_EQ(python_json(value, {.indent = 2, .sort_keys = true}),
            "{\n  \"a\": {\n    \"x\": 1e-05\n  },\n  \"b\": [\n    1,\n    {}\n  ],\n  "
            "\"\\u00e9\": -7\n}");
}

// Python sorts int keys before it makes texts of them.
TEST(PythonJson, KeysThatAreNumbersAreSortedByValue) {
  const Json value = {{"10", "c"}, {"2", "b"}, {"0", "a"}};
  EXPECT_EQ(python_json(value, {.sort_keys = true}), R"({"0": "a", "2": "b", "10": "c"})");
  EXPECT_EQ(python_json(Json{{"10", 1}, {"2a", 2}}, {.sort_keys = true}), R"({"10": 1, "2a": 2})");
}

TEST(PythonJson, Strings) {
  const std::string odd = "\"\\/\b\f\n\r\t\x01\x7f é \xf0\x9f\x98\x80\xe2\x80\xa8";
  EXPECT_EQ(python_json_string(odd), R"("\"\\/\b\f\n\r\t\u0001\u007f \u00e9 \ud83d\ude00\u2028")");
  EXPECT_EQ(python_json_string(odd, false),
            "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f é \xf0\x9f\x98\x80\xe2\x80\xa8\"");
  EXPECT_THROW(python_json_string("a\xff"), InvalidArgument);
  EXPECT_THROW(python_json_string("\xe2\x82"), InvalidArgument);
}

TEST(PythonJson, NumbersThatJsonLacks) {
  EXPECT_EQ(python_json(Json{std::nan(""), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}),
            "[NaN, Infinity, -Infinity]");
}

TEST(PythonJson, IsReadAsItIsWritten) {
  for (const char* text :
       {"NaN", "[NaN, Infinity, -Infinity]", R"({"a": NaN, "b": {"c": [-Infinity, 1.5, null]}})",
        R"(["NaN", "\"Infinity", "-Infinity\\", NaN])", R"({"NaN": 1, "a": true})"})
    EXPECT_EQ(python_json(parse_python_json(text)), text);
  for (const char* text : {"Nan", "-NaN", "+Infinity", "[NaN", "NaNNaN", "{NaN: 1}", "inf"})
    EXPECT_THROW(parse_python_json(text), Json::exception) << text;
}

}  // namespace
}  // namespace tandem
