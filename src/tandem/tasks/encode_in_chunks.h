// Rows of texts to tokens in parallel, chunk by chunk; the chunks are put together in order, so
// that the result is the same for any number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/thread_pool.h"
#include "tandem/text/tokenizer.h"

namespace tandem::tasks {

// The chunks of rows 0 … num_rows − 1, in order. add(row, encoding, chunk) appends a row to its
// chunk, rows of a chunk one after the other; `encoding` is memory of the thread to encode texts
// in. A DataError of add() gets location(row) in front.
template <class Chunk, class Add>
std::vector<Chunk> encode_in_chunks(std::size_t num_rows, ThreadPool& threads,
                                    FunctionRef<std::string(std::size_t row)> location, Add&& add) {
  constexpr std::size_t kRows = 32;  // about 5,000 tokens of long texts
  std::vector<Chunk> chunks(num_chunks(num_rows, kRows));
  std::vector<text::Encoding> encodings(static_cast<std::size_t>(threads.num_threads()));
  threads.parallel_for(chunks.size(), [&](std::size_t c, int thread) {
    const std::size_t end = std::min(num_rows, (c + 1) * kRows);
    for (std::size_t row = c * kRows; row < end; ++row) {
      try {
        add(row, encodings[static_cast<std::size_t>(thread)], chunks[c]);
      } catch (const DataError& error) {
        raise<DataError>("{}: {}", location(row), error.what());
      }
    }
  });
  return chunks;
}

// `part` behind `all`; the memory of `part` is freed.
template <class T>
void append_and_free(std::vector<T>& all, std::vector<T>& part) {
  all.insert(all.end(), part.begin(), part.end());
  part = {};
}

}  // namespace tandem::tasks
