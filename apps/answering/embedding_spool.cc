#include "apps/answering/embedding_spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "tandem/core/error.h"

namespace tandem::apps {

EmbeddingSpool::EmbeddingSpool(std::size_t size)
    : path_(std::filesystem::temp_directory_path() / "tandem-embed-XXXXXX"), size_(size) {
  const int descriptor = ::mkostemp(path_.data(), O_CLOEXEC);
  if (descriptor < 0) throw io_error("cannot write", path_, errno);
  ::unlink(path_.c_str());
  file_.reset(::fdopen(descriptor, "w+"));
  if (file_ == nullptr) {
    const int reason = errno;
    ::close(descriptor);
    throw io_error("cannot write", path_, reason);
  }
}

void EmbeddingSpool::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size())
    throw io_error("cannot write", path_, errno);
}

// False: the end.
bool EmbeddingSpool::read(std::span<std::byte> bytes) {
  if (std::fread(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return true;
  if (std::ferror(file_.get()) != 0) throw io_error("cannot read", path_, errno);
  return false;
}

void EmbeddingSpool::append(std::span<const std::string> texts, std::span<const float> embeddings) {
  const auto write_count = [&](std::size_t count) { write(std::as_bytes(std::span(&count, 1))); };
  write_count(texts.size());
  for (const std::string& text : texts) {
    write_count(text.size());
    write(std::as_bytes(std::span(text)));
  }
  write(std::as_bytes(embeddings));
}

void EmbeddingSpool::replay(const std::function<void(std::span<const std::string> texts,
                                                     std::span<const float> embeddings)>& take) {
  if (std::fflush(file_.get()) != 0) throw io_error("cannot write", path_, errno);
  std::rewind(file_.get());
  std::size_t count = 0, length = 0;
  while (read(std::as_writable_bytes(std::span(&count, 1)))) {
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
