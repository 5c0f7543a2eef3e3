#include "tandem/core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tandem {
namespace {

// The polynomial with its bits reflected, as all values here: bit 31 is the constant term.
constexpr std::uint32_t kPolynomial = 0x82F63B78u;

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0u);
}

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = times_x(table[i]);
  }
  return table;
}
constexpr auto kTable = make_table();

std::uint32_t update_reference(std::uint32_t state, const std::byte* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    state = (state >> 8) ^ kTable[(state ^ static_cast<std::uint32_t>(bytes[i])) & 0xFF];
  return state;
}

[[maybe_unused]] std::uint64_t load(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

#if defined(__x86_64__)

// x^n modulo the polynomial.
constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t value = 0x80000000u;
  for (std::size_t i = 0; i < n; ++i) value = times_x(value);
  return value;
}

// The state after `kBytes` more bytes of zeros: the product with x^(8 kBytes). The instruction
// multiplies by x^32, and the product of two reflected values by x.
template <std::size_t kBytes>
__attribute__((target("sse4.2,pclmul"))) std::uint32_t append_zeros(std::uint32_t state) {
  constexpr std::uint32_t kFactor = power_of_x(8 * kBytes - 33);
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(state)),
                                               _mm_cvtsi32_si128(static_cast<int>(kFactor)), 0);
  return static_cast<std::uint32_t>(
      _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product))));
}

// The instruction takes three cycles and starts one each cycle: three neighbouring stripes of
// `kStripe` bytes at a time, as long as there are three.
template <std::size_t kStripe>
__attribute__((target("sse4.2,pclmul"))) std::uint32_t update_stripes(std::uint32_t state,
                                                                      const std::byte*& bytes,
                                                                      std::size_t& count) {
  for (; count >= 3 * kStripe; bytes += 3 * kStripe, count -= 3 * kStripe) {
    std::uint64_t first = state;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kStripe; i += sizeof(std::uint64_t)) {
      first = _mm_crc32_u64(first, load(bytes + i));
      second = _mm_crc32_u64(second, load(bytes + kStripe + i));
      third = _mm_crc32_u64(third, load(bytes + 2 * kStripe + i));
    }
    state = append_zeros<2 * kStripe>(static_cast<std::uint32_t>(first)) ^
            append_zeros<kStripe>(static_cast<std::uint32_t>(second)) ^
            static_cast<std::uint32_t>(third);
  }
  return state;
}

__attribute__((target("sse4.2,pclmul"))) std::uint32_t update_sse42(std::uint32_t state,
                                                                    const std::byte* bytes,
                                                                    std::size_t count) {
  state = update_stripes<2048>(state, bytes, count);
  state = update_stripes<128>(state, bytes, count);
  for (; count >= sizeof(std::uint64_t);
       bytes += sizeof(std::uint64_t), count -= sizeof(std::uint64_t))
    state = static_cast<std::uint32_t>(_mm_crc32_u64(state, load(bytes)));
  for (; count > 0; ++bytes, --count)
    state = _mm_crc32_u8(state, static_cast<unsigned char>(*bytes));
  return state;
}

bool has_instruction() {
  return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0;
}
constexpr std::string_view kInstruction = "sse4.2";
constexpr auto update_with_instruction = update_sse42;

#elif defined(__aarch64__) && defined(__linux__)

__attribute__((target("+crc"))) std::uint32_t update_armv8(std::uint32_t state,
                                                           const std::byte* bytes,
                                                           std::size_t count) {
  for (; count >= sizeof(std::uint64_t);
       bytes += sizeof(std::uint64_t), count -= sizeof(std::uint64_t))
    state = __crc32cd(state, load(bytes));
  for (; count > 0; ++bytes, --count) state = __crc32cb(state, static_cast<unsigned char>(*bytes));
  return state;
}

bool has_instruction() { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
constexpr std::string_view kInstruction = "armv8";
constexpr auto update_with_instruction = update_armv8;

#else

bool has_instruction() { return false; }
constexpr std::string_view kInstruction = "reference";
constexpr auto update_with_instruction = update_reference;

#endif

const bool kHasInstruction = has_instruction();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  const auto update = kHasInstruction ? update_with_instruction : update_reference;
  return ~update(~before, bytes.data(), bytes.size());
}

std::uint32_t crc32c_reference(std::span<const std::byte> bytes, std::uint32_t before) {
  return ~update_reference(~before, bytes.data(), bytes.size());
}

std::string_view crc32c_kernel() { return kHasInstruction ? kInstruction : "reference"; }

}  // namespace tandem
