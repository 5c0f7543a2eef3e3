// Texts and embeddings on disk until all of them are there.
#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tandem::apps {

// A file without a name in the folder for temporary files (TMPDIR); a kill leaves nothing of it.
// Not thread-safe.
class EmbeddingSpool {
 public:
  // size: values of an embedding. Throws IoError, as all of it.
  explicit EmbeddingSpool(std::size_t size);

  void append(std::span<const std::string> texts, std::span<const float> embeddings);
  // Calls the consumer with the appended rows, call by call. Nothing can be appended afterwards.
  void replay(const std::function<void(std::span<const std::string> texts,
                                       std::span<const float> embeddings)>& take);

 private:
  void write(std::span<const std::byte> bytes);
  bool read(std::span<std::byte> bytes);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;  // for messages
  std::size_t size_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tandem::apps
