#include "tandem/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/mappings.h"
#include "tandem/core/random_bits.h"

namespace tandem {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::size_t regular_file_size(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw io_error("cannot examine", path.native(), errno);
  if (S_ISDIR(info.st_mode)) throw io_error("cannot read", path.native(), EISDIR);
  return static_cast<std::size_t>(info.st_size);
}

void require_regular_file(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw io_error("cannot examine", path.native(), errno);
  if (S_ISDIR(info.st_mode)) throw io_error("cannot read", path.native(), EISDIR);
  if (!S_ISREG(info.st_mode))
    raise<IoError>("cannot map '{}': found a FIFO or a device, expected a regular file",
                   path.native());
}

void require_own_file(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw io_error("cannot examine", path.native(), errno);
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    raise<IoError>("'{}' belongs to another user (number {}) and is not trusted", path.native(),
                   info.st_uid);
  }
  if ((info.st_mode & S_IWOTH) != 0)
    raise<IoError>("'{}' can be written by all users and is not trusted", path.native());
}

// The text between a file's name and 16 hexadecimal digits in the name of its temporary file.
constexpr std::string_view kTemporaryMark = ".tmp-";

bool is_temporary_name(std::string_view name) {
  constexpr std::size_t kDigits = 16;
  if (name.size() <= kTemporaryMark.size() + kDigits) return false;
  const std::string_view digits = name.substr(name.size() - kDigits);
  return name.substr(0, name.size() - kDigits).ends_with(kTemporaryMark) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// 0 at the end of the file.
std::size_t read_some(int fd, std::span<std::byte> into, const std::filesystem::path& path) {
  while (true) {
    const ssize_t n = ::read(fd, into.data(), into.size());
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) throw io_error("cannot read", path.native(), errno);
  }
}

std::string read_open_file(int fd, const std::filesystem::path& path) {
  std::string text;
  text.resize(regular_file_size(fd, path));
  std::size_t done = 0;
  while (true) {  // pipes and growing files have no useful size: read until the end
    if (done == text.size()) text.resize(text.size() + 4096);
    const std::size_t n =
        read_some(fd, std::as_writable_bytes(std::span(text)).subspan(done), path);
    if (n == 0) break;
    done += n;
  }
  text.resize(done);
  return text;
}

// Calls move(bytes done), which returns what it moved, until all bytes are moved. False: errno has
// the reason.
template <class Move>
bool move_all(std::size_t size, Move&& move) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t moved = move(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved == 0) errno = EIO;
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

IoError temporary_error(std::string_view what, const std::filesystem::path& folder,
                        int error_number) {
  const IoError error = io_error(what, folder.native(), error_number);
  return IoError(fmt::format("{}; TMPDIR names another folder for temporary files", error.what()));
}

// Names the file that the user named, and its folder if that is what lacks.
IoError creation_error(const std::filesystem::path& path, int error_number) {
  IoError error = io_error("cannot create", path.native(), error_number);
  const std::filesystem::path folder = path.parent_path();
  std::error_code ignored;
  if (error_number != ENOENT || folder.empty() || std::filesystem::exists(folder, ignored))
    return error;
  return IoError(fmt::format("cannot create '{}': the folder '{}' does not exist; create it first",
                             path.native(), folder.native()));
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw io_error("cannot open", path.native(), errno);
  return read_open_file(file.get(), path);
}

std::optional<std::string> read_file_if_exists(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (file.get() < 0) throw io_error("cannot open", path.native(), errno);
  return read_open_file(file.get(), path);
}

void read_in_pieces(const std::filesystem::path& path, std::span<std::byte> piece,
                    const std::function<void(std::span<const std::byte>)>& take) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw io_error("cannot open", path.native(), errno);
  while (const std::size_t n = read_some(file.get(), piece, path)) take(piece.first(n));
}

std::vector<std::filesystem::path> list_directory(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  std::filesystem::directory_iterator at(directory, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    return entries;
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error))
    entries.push_back(at->path());
  if (error) throw io_error("cannot read directory", directory.native(), error.value());
  return entries;
}

MappedFile::MappedFile(const std::filesystem::path& path) : MappedFile(path, Writers::kAnybody) {}

MappedFile::MappedFile(const std::filesystem::path& path, Writers writers) {
  // A FIFO would wait for its writer, and neither it nor a device can be mapped.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) throw io_error("cannot open", path.native(), errno);
  require_regular_file(file.get(), path);
  if (writers == Writers::kThisUser) require_own_file(file.get(), path);
  size_ = regular_file_size(file.get(), path);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw io_error("cannot map", path.native(), errno);
  data_ = static_cast<const std::byte*>(address);
  note_mapping(data_, size_, path.native());
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)),
      temporary_(fmt::format("{}{}{:016x}", path_.native(), kTemporaryMark, random_bits())) {
  descriptor_ =
      ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw creation_error(path_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;  // committed
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const bool whole = move_all(bytes.size(), [&](std::size_t done) {
    return ::write(descriptor_, bytes.data() + done, bytes.size() - done);
  });
  if (!whole) throw io_error("cannot write", path_.native(), errno);
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) throw io_error("cannot sync", temporary_.native(), errno);
  close_it();
  rename_it();
  const auto directory = path_.parent_path();
  sync_directory(directory.empty() ? "." : directory);
}

void AtomicFile::publish_if_new() {
  close_it();
  if (::link(temporary_.c_str(), path_.c_str()) == 0 || errno == EEXIST) {
    ::unlink(temporary_.c_str());
  } else {
    rename_it();  // a file system without links
  }
}

void AtomicFile::close_it() {
  if (::close(std::exchange(descriptor_, -1)) == 0) return;
  const int error = errno;
  ::unlink(temporary_.c_str());
  throw io_error("cannot close", temporary_.native(), error);
}

void AtomicFile::rename_it() {
  if (::rename(temporary_.c_str(), path_.c_str()) == 0) return;
  const int error = errno;
  ::unlink(temporary_.c_str());
  throw io_error("cannot rename to", path_.native(), error);
}

UnnamedFile::UnnamedFile() {
  std::error_code error;
  folder_ = std::filesystem::temp_directory_path(error);
  if (error) throw temporary_error("cannot use the folder", "TMPDIR", error.value());
  std::string name = folder_ / "tandem-XXXXXX";
  descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) throw temporary_error("cannot create a temporary file in", folder_, errno);
  ::unlink(name.c_str());
}

UnnamedFile::~UnnamedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

UnnamedFile::UnnamedFile(UnnamedFile&& other) noexcept
    : folder_(std::move(other.folder_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

UnnamedFile& UnnamedFile::operator=(UnnamedFile&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void UnnamedFile::write_at(std::uint64_t position, std::span<const std::byte> bytes) {
  const bool whole = move_all(bytes.size(), [&](std::size_t done) {
    return ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done,
                    static_cast<off_t>(position + done));
  });
  if (!whole) throw temporary_error("cannot write a temporary file in", folder_, errno);
  size_ = std::max(size_, position + bytes.size());
}

void UnnamedFile::read_at(std::uint64_t position, std::span<std::byte> bytes) const {
  const bool whole = move_all(bytes.size(), [&](std::size_t done) {
    return ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                   static_cast<off_t>(position + done));
  });
  if (!whole) throw temporary_error("cannot read a temporary file in", folder_, errno);
}

std::filesystem::path UnnamedFile::path() const {
  return fmt::format("/proc/self/fd/{}", descriptor_);
}

void remove_abandoned_files(const std::filesystem::path& directory) noexcept {
  try {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (!entry.is_directory() && is_temporary_name(entry.path().filename().native()))
        ::unlink(entry.path().c_str());
    }
  } catch (const std::exception&) {  // not readable: the writer reports the error
  }
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0) throw io_error("cannot open directory", directory.native(), errno);
  if (::fsync(file.get()) != 0) throw io_error("cannot sync directory", directory.native(), errno);
}

}  // namespace tandem
