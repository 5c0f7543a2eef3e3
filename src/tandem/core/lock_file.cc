#include "tandem/core/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem {
namespace {

constexpr std::size_t kMaxText = 500;
// How often a lock file may be removed just when it is locked.
constexpr int kMostAttempts = 5;

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

// Whether `descriptor` is still the file of this name: another process may have removed it
// meanwhile. The name is opened again, since only that makes a client of NFS ask its server; stat()
// may answer out of a cache.
bool is_file_of(int descriptor, const std::filesystem::path& path) {
  const int named = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (named < 0) return false;
  struct stat open_file {};
  struct stat named_file {};
  const bool same = ::fstat(descriptor, &open_file) == 0 && ::fstat(named, &named_file) == 0 &&
                    open_file.st_ino == named_file.st_ino && open_file.st_dev == named_file.st_dev;
  ::close(named);
  return same;
}

}  // namespace

std::optional<LockFile> LockFile::try_acquire(const std::filesystem::path& path) {
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0) throw io_error("cannot open the lock file", path.native(), errno);
    const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    const int error = errno;
    if (locked && is_file_of(descriptor, path)) return LockFile(path, descriptor);
    ::close(descriptor);
    if (!locked && (error == EWOULDBLOCK || error == EINTR)) return std::nullopt;
    if (!locked) throw io_error("cannot lock", path.native(), error);
  }
  return std::nullopt;
}

std::string LockFile::text_of(const std::filesystem::path& path) {
  try {
    return read_file_if_exists(path).value_or("").substr(0, kMaxText);
  } catch (const IoError&) {  // only words for a message
    return "";
  }
}

LockFile::LockFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {
  describe_holder("");
}

LockFile::~LockFile() {
  if (descriptor_ < 0) return;
  if (removes_) ::unlink(path_.c_str());
  // An empty file: the next process that opens it does not blame this one.
  if (::ftruncate(descriptor_, 0) != 0) {
  }
  ::close(descriptor_);
}

LockFile::LockFile(LockFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      removes_(other.removes_) {}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(removes_, other.removes_);
  return *this;
}

void LockFile::describe_holder(std::string_view more) {
  const std::string text =
      fmt::format("process {} on {}{}", static_cast<long>(::getpid()), host_name(), more);
  if (::ftruncate(descriptor_, 0) != 0) return;
  [[maybe_unused]] const auto written = ::pwrite(descriptor_, text.data(), text.size(), 0);
}

}  // namespace tandem
