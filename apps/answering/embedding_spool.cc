#include "apps/answering/embedding_spool.h"

#include <cstdint>
#include <vector>

namespace tandem::apps {

void EmbeddingSpool::append(std::span<const std::string> texts, std::span<const float> embeddings) {
  std::string record;
  const auto add_count = [&](std::size_t count) {
    record.append(reinterpret_cast<const char*>(&count), sizeof(count));
  };
  add_count(texts.size());
  for (const std::string& text : texts) {
    add_count(text.size());
    record += text;
  }
  file_.append(std::as_bytes(std::span(record)));
  file_.append(std::as_bytes(embeddings));
}

void EmbeddingSpool::replay(
    const std::function<void(std::span<const std::string> texts,
                             std::span<const float> embeddings)>& take) const {
  std::uint64_t position = 0;
  const auto read = [&](std::span<std::byte> bytes) {
    file_.read_at(position, bytes);
    position += bytes.size();
  };
  std::size_t count = 0, length = 0;
  while (position < file_.size()) {
    read(std::as_writable_bytes(std::span(&count, 1)));
    std::vector<std::string> texts(count);
    for (std::string& text : texts) {
      read(std::as_writable_bytes(std::span(&length, 1)));
      text.resize(length);
      read(std::as_writable_bytes(std::span(text)));
    }
    std::vector<float> embeddings(count * size_);
    read(std::as_writable_bytes(std::span(embeddings)));
    take(texts, embeddings);
  }
}

}  // namespace tandem::apps
