// Embeddings of more texts than memory holds: reading, computing and writing at the same time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "apps/answering/embedding.h"
#include "tandem/core/thread_pool.h"

namespace tandem::apps {

struct EmbeddingStream {
  FunctionRef<std::vector<std::string>()> read;  // the next texts; none: the end
  // Called in the order of the texts, with the embeddings [texts, size()] of what read() gave.
  FunctionRef<void(std::span<const std::string> texts, std::span<const float> embeddings)> write;
};

// Embeds all texts of the stream, with the embedder's prompt, and returns their number. While the
// model computes texts, another thread writes those before them and then reads and tokenizes those
// behind them: it is the only caller of read() and write(). Texts before an error are written.
// Throws what read(), write() and Embedder::embed() throw; `first_number` as there.
std::size_t embed_stream(Embedder& embedder, std::size_t first_number,
                         const EmbeddingStream& stream);

}  // namespace tandem::apps
