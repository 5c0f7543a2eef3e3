#include "tandem/tasks/text_classification/numpy_permutation.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace tandem::text_classification {
namespace {

__extension__ using Uint128 = unsigned __int128;

// numpy's SeedSequence: spreads a seed over a pool of four words, and makes words of it.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t seed) {
    const std::array<std::uint32_t, 4> entropy{static_cast<std::uint32_t>(seed),
                                               static_cast<std::uint32_t>(seed >> 32), 0, 0};
    std::uint32_t constant = 0x43b0d7e5;
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(entropy[i], constant);
    for (std::size_t from = 0; from < pool_.size(); ++from) {
      for (std::size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from], constant));
      }
    }
  }

  std::array<std::uint64_t, 4> words() const {
    std::array<std::uint64_t, 4> words{};
    std::uint32_t constant = 0x8b51f9dd;
    for (std::size_t i = 0; i < 8; ++i) {
      std::uint32_t value = pool_[i % 4] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      value ^= value >> 16;
      words[i / 2] |= std::uint64_t{value} << (32 * (i % 2));
    }
    return words;
  }

 private:
  static std::uint32_t hash(std::uint32_t value, std::uint32_t& constant) {
    value ^= constant;
    constant *= 0x931e8875;
    value *= constant;
    return value ^ (value >> 16);
  }
  static std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t value = 0xca01f9dd * x - 0x4973f715 * y;
    return value ^ (value >> 16);
  }

  std::array<std::uint32_t, 4> pool_{};
};

class Pcg64 {
 public:
  explicit Pcg64(std::uint64_t seed) {
    const auto words = SeedSequence(seed).words();
    increment_ = (((Uint128{words[2]} << 64) | words[3]) << 1) | 1;
    step();
    state_ += (Uint128{words[0]} << 64) | words[1];
    step();
  }

  // Returns the lower half of a 64-bit number first, then the upper half.
  std::uint32_t next() {
    if (has_upper_) {
      has_upper_ = false;
      return upper_;
    }
    step();
    const auto folded =
        static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const std::uint64_t value = std::rotr(folded, static_cast<int>(state_ >> 122));
    upper_ = static_cast<std::uint32_t>(value >> 32);
    has_upper_ = true;
    return static_cast<std::uint32_t>(value);
  }

  // In [0, last]: numbers of as many bits as `last` has, until one is in it.
  std::uint32_t bounded(std::uint32_t last) {
    const int bits = std::bit_width(last);
    const std::uint32_t mask = bits == 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << bits) - 1;
    while (true) {
      if (const std::uint32_t value = next() & mask; value <= last) return value;
    }
  }

 private:
  void step() {
    constexpr Uint128 kMultiplier =
        (Uint128{0x2360ed051fc65da4} << 64) | Uint128{0x4385df649fccf645};
    state_ = state_ * kMultiplier + increment_;
  }

  Uint128 state_ = 0, increment_ = 0;
  std::uint32_t upper_ = 0;
  bool has_upper_ = false;
};

}  // namespace

std::vector<std::uint32_t> numpy_permutation(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  Pcg64 generator(seed);
  for (std::size_t i = count; i-- > 1;)
    std::swap(order[i], order[generator.bounded(static_cast<std::uint32_t>(i))]);
  return order;
}

}  // namespace tandem::text_classification
