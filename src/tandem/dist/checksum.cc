#include "tandem/dist/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tandem/dist/model_state.h"

namespace tandem::dist {

void add_in_pieces(Checksum& sum, ThreadPool& threads, std::span<const float> values) {
  std::vector<std::uint64_t> pieces(num_chunks(values.size(), ModelState::kChunk));
  threads.parallel_for(pieces.size(), [&](std::size_t piece, int) {
    const std::size_t begin = piece * ModelState::kChunk;
    Checksum one;
    one.add(values.subspan(begin, std::min(ModelState::kChunk, values.size() - begin)));
    pieces[piece] = one.value();
  });
  for (const std::uint64_t piece : pieces) sum.add(piece);
}

std::string checksum_line(std::string_view name, ThreadPool& threads,
                          std::span<const float> values) {
  Checksum sum;
  add_in_pieces(sum, threads, values);
  return fmt::format("checksum of the {}={:016x}\n", name, sum.value());
}

}  // namespace tandem::dist
