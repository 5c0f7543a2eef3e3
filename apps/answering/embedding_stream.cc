#include "apps/answering/embedding_stream.h"

#include <exception>
#include <future>
#include <utility>

namespace tandem::apps {
namespace {

struct Batch {
  std::vector<std::string> texts;
  Embedder::Tokenized tokens;
  std::exception_ptr error;    // of reading or tokenizing; no texts then
  std::vector<float> outputs;  // once they are computed
};

class Stream {
 public:
  Stream(Embedder& embedder, std::size_t first_number, const EmbeddingStream& stream)
      : embedder_(embedder), next_number_(first_number), stream_(stream) {}

  // An error waits until the texts before it are written.
  Batch read() {
    Batch batch;
    try {
      batch.texts = stream_.read();
      batch.tokens = embedder_.tokenize(embedder_.prompt(), batch.texts, next_number_);
      next_number_ += batch.texts.size();
    } catch (...) {
      batch.texts.clear();
      batch.error = std::current_exception();
    }
    return batch;
  }

  void write(const Batch& batch) {
    if (!batch.texts.empty())
      stream_.write(batch.texts, embedder_.finish(batch.tokens, batch.outputs));
  }

 private:
  Embedder& embedder_;
  std::size_t next_number_;
  const EmbeddingStream& stream_;
};

}  // namespace

std::size_t embed_stream(Embedder& embedder, std::size_t first_number,
                         const EmbeddingStream& stream) {
  Stream batches(embedder, first_number, stream);
  std::size_t done = 0;
  Batch before, current = batches.read();
  while (!current.texts.empty()) {
    auto next = std::async(std::launch::async, [&] {
      batches.write(before);
      return batches.read();
    });
    current.outputs = embedder.compute(current.tokens);
    Batch behind = next.get();
    done += current.texts.size();
    before = std::exchange(current, std::move(behind));
  }
  batches.write(before);
  if (current.error) std::rethrow_exception(current.error);
  return done;
}

}  // namespace tandem::apps
