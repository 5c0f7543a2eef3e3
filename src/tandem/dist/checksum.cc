#include "tandem/dist/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tandem/dist/model_state.h"

namespace tandem::dist {

namespace {

template <class T>
void add_pieces(Checksum& sum, ThreadPool& threads, std::span<const T> values) {
  std::vector<std::uint64_t> pieces(num_chunks(values.size(), ModelState::kChunk));
  threads.parallel_for(pieces.size(), [&](std::size_t piece, int) {
    const std::size_t begin = piece * ModelState::kChunk;
    Checksum one;
    one.add(values.subspan(begin, std::min(ModelState::kChunk, values.size() - begin)));
    pieces[piece] = one.value();
  });
  for (const std::uint64_t piece : pieces) sum.add(piece);
}

template <class T>
std::string line_of(std::string_view name, ThreadPool& threads, std::span<const T> values) {
  Checksum sum;
  add_pieces(sum, threads, values);
  return fmt::format("checksum of the {}={:016x}\n", name, sum.value());
}

}  // namespace

void add_in_pieces(Checksum& sum, ThreadPool& threads, std::span<const float> values) {
  add_pieces(sum, threads, values);
}

std::string checksum_line(std::string_view name, ThreadPool& threads,
                          std::span<const float> values) {
  return line_of(name, threads, values);
}

std::string checksum_line(std::string_view name, ThreadPool& threads,
                          std::span<const bfloat16> values) {
  return line_of(name, threads, values);
}

}  // namespace tandem::dist
