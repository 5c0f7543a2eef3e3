// Processor time of CRC-32C, for bench/checksum_cost.py: prints seconds per GiB, in memory that is
// not in a cache.
#include <cstdio>
#include <ctime>
#include <vector>

#include "tandem/core/crc32c.h"

int main() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr int kRounds = 8;
  const std::vector<std::byte> bytes(kBytes, std::byte{7});
  std::uint32_t sum = tandem::crc32c(bytes);
  const std::clock_t begin = std::clock();  // processor time: other programs do not count
  for (int round = 0; round < kRounds; ++round) sum = tandem::crc32c(bytes, sum);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%.6f %u\n", seconds * (1 << 30) / (kRounds * static_cast<double>(kBytes)), sum);
}
