// Texts and embeddings on disk until all of them are there.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "tandem/core/file.h"

namespace tandem::apps {

// An UnnamedFile, whose errors it throws. Not thread-safe.
class EmbeddingSpool {
 public:
  // size: values of an embedding.
  explicit EmbeddingSpool(std::size_t size) : size_(size) {}

  void append(std::span<const std::string> texts, std::span<const float> embeddings);
  // Calls the consumer with the appended rows, call by call.
  void replay(const std::function<void(std::span<const std::string> texts,
                                       std::span<const float> embeddings)>& take) const;

 private:
  std::size_t size_;
  UnnamedFile file_;
};

}  // namespace tandem::apps
