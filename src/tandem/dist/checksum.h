// A checksum that detects changes by a network or a mistake, not by an attacker.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "tandem/core/bfloat16.h"
#include "tandem/core/thread_pool.h"

namespace tandem::dist {

class Checksum {
 public:
  explicit Checksum(std::uint64_t start = 0) : sum_(start) {}
  void add(std::uint64_t value) { sum_ = mixed(sum_, value); }
  void add(std::span<const double> values) {
    for (const double value : values) add(std::bit_cast<std::uint64_t>(value));
  }
  void add(std::string_view text) {
    for (const char letter : text) add(std::uint64_t{static_cast<unsigned char>(letter)});
  }
  void add(std::span<const float> values) { add_bits<std::uint32_t>(values); }
  void add(std::span<const bfloat16> values) { add_bits<std::uint16_t>(values); }
  std::uint64_t value() const { return sum_; }

 private:
  static constexpr std::size_t kChains = 8;
  static std::uint64_t mixed(std::uint64_t sum, std::uint64_t value) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
    return std::rotl((sum ^ value) * kOdd, 29);
  }
  // Several chains side by side, of some values at a time: each product waits for the one before it
  // in its own.
  template <class Bits, class T>
  void add_bits(std::span<const T> values) {
    constexpr std::size_t kStep = kChains * sizeof(std::uint64_t) / sizeof(T);
    std::array<std::uint64_t, kChains> chains{};
    std::size_t i = 0;
    for (; i + kStep <= values.size(); i += kStep) {
      std::array<std::uint64_t, kChains> words;
      std::memcpy(words.data(), values.data() + i, sizeof words);
      for (std::size_t k = 0; k < kChains; ++k) chains[k] = mixed(chains[k], words[k]);
    }
    for (; i < values.size(); ++i) chains[0] = mixed(chains[0], std::bit_cast<Bits>(values[i]));
    for (const std::uint64_t chain : chains) add(chain);
  }
  std::uint64_t sum_;
};

// Adds `values` on all `threads`; the same sum for any number of them. It is another one than that
// of Checksum::add(values).
void add_in_pieces(Checksum& sum, ThreadPool& threads, std::span<const float> values);

// "checksum of the NAME=0123456789abcdef\n", for ranks to agree on.
std::string checksum_line(std::string_view name, ThreadPool& threads,
                          std::span<const float> values);
std::string checksum_line(std::string_view name, ThreadPool& threads,
                          std::span<const bfloat16> values);

}  // namespace tandem::dist
