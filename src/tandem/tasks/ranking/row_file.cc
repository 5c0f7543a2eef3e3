#include "tandem/tasks/ranking/row_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tandem/core/error.h"

namespace tandem::tasks::ranking {
namespace {

// Calls transfer(bytes done, bytes left) until all bytes are there; it returns what it moved.
template <class Transfer>
void transfer_all(std::size_t size, const std::string& what, const std::string& path,
                  Transfer transfer) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t moved = transfer(done, size - done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) throw io_error(what, path, moved < 0 ? errno : EIO);
    done += static_cast<std::size_t>(moved);
  }
}

}  // namespace

RowFile::RowFile(std::size_t width)
    : path_((std::filesystem::temp_directory_path() / "tandem-XXXXXX").native()), width_(width) {
  descriptor_ = ::mkostemp(path_.data(), O_CLOEXEC);
  if (descriptor_ < 0) throw io_error("cannot write", path_, errno);
  ::unlink(path_.c_str());
}

RowFile::~RowFile() { ::close(descriptor_); }

void RowFile::write(std::size_t first, std::span<const float> values) {
  const auto* const bytes = reinterpret_cast<const char*>(values.data());
  const std::size_t begin = first * width_ * sizeof(float);
  transfer_all(values.size_bytes(), "cannot write", path_, [&](std::size_t done, std::size_t left) {
    return ::pwrite(descriptor_, bytes + done, left, static_cast<off_t>(begin + done));
  });
}

void RowFile::read(std::size_t first, std::span<float> values) const {
  auto* const bytes = reinterpret_cast<char*>(values.data());
  const std::size_t begin = first * width_ * sizeof(float);
  transfer_all(values.size_bytes(), "cannot read", path_, [&](std::size_t done, std::size_t left) {
    return ::pread(descriptor_, bytes + done, left, static_cast<off_t>(begin + done));
  });
}

}  // namespace tandem::tasks::ranking
