#include "tandem/core/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tandem {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// RFC 3720, appendix B.4, and the check value of the CRC catalogues.
TEST(Crc32c, KnownValues) {
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  const std::string descending(ascending.rbegin(), ascending.rend());
  const std::pair<std::string, std::uint32_t> known[] = {{"", 0u},
                                                         {"123456789", 0xE3069283u},
                                                         {std::string(32, '\0'), 0x8A9136AAu},
                                                         {std::string(32, '\xff'), 0x62A8AB43u},
                                                         {ascending, 0x46DD794Eu},
                                                         {descending, 0x113FDB5Cu}};
  for (const auto& [text, value] : known) {
    EXPECT_EQ(crc32c(text), value);
    EXPECT_EQ(crc32c_reference(bytes_of(text)), value);
  }
}

class Crc32cOfRandomBytes : public ::testing::Test {
 protected:
  Crc32cOfRandomBytes() : bytes_(3 * 2048 * 3 + 64) {
    std::mt19937 random(17);
    std::generate(bytes_.begin(), bytes_.end(), [&] { return static_cast<std::byte>(random()); });
  }
  std::vector<std::byte> bytes_;
};

// Every length up to beyond the longer stripes, from every alignment of a word.
TEST_F(Crc32cOfRandomBytes, IsThatOfTheReferenceForEveryLengthAndAlignment) {
  const std::span<const std::byte> all(bytes_);
  for (std::size_t begin = 0; begin < 8; ++begin) {
    std::uint32_t expected = 0;
    for (std::size_t count = 0; begin + count <= bytes_.size(); ++count) {
      if (count > 0) expected = crc32c_reference(all.subspan(begin + count - 1, 1), expected);
      if (begin > 0 && count > 1000 && count % 61 != 0) continue;
      ASSERT_EQ(crc32c(all.subspan(begin, count)), expected) << begin << " " << count;
    }
  }
}

TEST_F(Crc32cOfRandomBytes, ContinuesAcrossPieces) {
  const std::span<const std::byte> all(bytes_);
  const std::uint32_t whole = crc32c(all);
  for (const std::size_t cut :
       {std::size_t{1}, std::size_t{7}, std::size_t{383}, std::size_t{6144}, bytes_.size() - 1}) {
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole) << cut;
  }
}

TEST_F(Crc32cOfRandomBytes, ShowsEveryFlippedBit) {
  bytes_.resize(777);
  const std::uint32_t whole = crc32c(bytes_);
  for (std::size_t bit = 0; bit < 8 * bytes_.size(); ++bit) {
    bytes_[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_NE(crc32c(bytes_), whole) << bit;
    bytes_[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

}  // namespace
}  // namespace tandem
