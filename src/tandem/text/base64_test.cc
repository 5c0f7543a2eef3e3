#include "tandem/text/base64.h"

#include <gtest/gtest.h>

#include <utility>

namespace tandem::text {
namespace {

TEST(Base64, HasTheExamplesOfItsStandard) {  // RFC 4648, section 10
  for (const auto& [bytes, text] : {std::pair{"", ""},
                                    {"f", "Zg=="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"fooba", "Zm9vYmE="},
                                    {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
}

TEST(Base64, TakesEveryByte) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * 7);
  EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  EXPECT_EQ(from_base64("+/+/"), "\xfb\xff\xbf");
}

TEST(Base64, RefusesWhatIsNotBase64) {
  for (const char* const text :
       {"Zg=", "Zg", "Z", "====", "Zm=v", "=m9v", " Zm9v   ", "Zm9v\n\n\n\n", "-Zm9", "Zm9-",
        "Zm9_", "Zm9*", "Z===", "Zg==Zg==", "\xff\xff\xff\xff"})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace tandem::text
