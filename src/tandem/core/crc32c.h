// CRC-32C (Castagnoli, RFC 3720): shows what a network or a disk has changed by accident, every
// change of up to 32 neighbouring bits among them. No protection against intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

// The checksum of `bytes` behind others whose checksum is `before` (0: none):
// crc32c(b, crc32c(a)) is that of a and b in one piece. Uses the CPU's instruction if it has one.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
inline std::uint32_t crc32c(std::string_view text, std::uint32_t before = 0) {
  return crc32c(std::as_bytes(std::span(text)), before);
}

// The same from a table, a byte at a time, on any CPU.
std::uint32_t crc32c_reference(std::span<const std::byte> bytes, std::uint32_t before = 0);

// The kind of crc32c() on this CPU: "sse4.2", "armv8" or "reference".
std::string_view crc32c_kernel();

}  // namespace tandem
