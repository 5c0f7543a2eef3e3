#include "tandem/report/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>

#include "tandem/core/crc32c.h"
#include "tandem/core/error.h"

namespace tandem::report {
namespace {

namespace fs = std::filesystem;

// A stored CRC is rotated and shifted, because a CRC of data that holds CRCs is weak.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// --- the wire format of protocol buffers ---

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(int field, WireType type) {
  return varint(static_cast<std::uint64_t>(field) << 3 | type);
}
std::string integer(int field, std::uint64_t value) { return key(field, kVarint) + varint(value); }
std::string bytes(int field, std::string_view value) {
  return key(field, kLengthDelimited) + varint(value.size()) + std::string(value);
}
std::string number(int field, double value) {
  return key(field, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string number(int field, float value) {
  return key(field, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// --- messages ---

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string version_event() {
  return number(1, wall_time()) + bytes(3, "brain.Event:2");  // Event.file_version
}

std::string summary_event(std::int64_t step, const std::string& value) {
  const std::string summary = bytes(1, value);  // Summary.value
  return number(1, wall_time()) + integer(2, static_cast<std::uint64_t>(step)) + bytes(5, summary);
}

// Summary.Value of the plugin "text": a tensor of one string.
std::string text_value(std::string_view tag, std::string_view text) {
  constexpr int kString = 7;                          // DataType.DT_STRING
  const std::string shape = bytes(2, integer(1, 1));  // one dimension of size 1
  const std::string tensor = integer(1, kString) + bytes(2, shape) + bytes(8, text);
  const std::string metadata = bytes(1, bytes(1, "text"));  // plugin_data.plugin_name
  return bytes(1, tag) + bytes(8, tensor) + bytes(9, metadata);
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), HOST_NAME_MAX) == 0 ? name.data() : "localhost";
}

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr int kSecondsDigits = 10;
constexpr std::int64_t kLastSeconds = 9'999'999'999;

// The seconds in the name of an event file; 0 for a file of another name.
std::int64_t seconds_in(std::string_view name) {
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  std::int64_t seconds = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + std::min(name.size(), name.find('.')), seconds);
  return error == std::errc() && end == name.data() + kSecondsDigits ? seconds : 0;
}

// TensorBoard reads a directory's files in the order of their names and never goes back. So the
// seconds are later than those of every file there, however short ago it was begun and whatever
// the clock of the host that began it.
std::int64_t seconds_of_next(const fs::path& directory) {
  auto seconds = static_cast<std::int64_t>(wall_time());
  std::error_code error;
  for (fs::directory_iterator file(directory, error), end; !error && file != end;
       file.increment(error)) {
    const std::int64_t other = seconds_in(file->path().filename().native());
    if (other < kLastSeconds) seconds = std::max(seconds, other + 1);
  }
  return seconds;
}

std::string file_name(const fs::path& directory) {
  static std::atomic<int> count{0};  // of this process, as torch counts
  return fmt::format("{}{:0{}}.{}.{}.{}", kPrefix, seconds_of_next(directory), kSecondsDigits,
                     host_name(), getpid(), count++);
}

}  // namespace

EventFile::EventFile(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("cannot create directory", directory.native(), error.value());
  path_ = directory / file_name(directory);
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw io_error("cannot create", path_.native(), errno);
  append(version_event());
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void EventFile::add_scalar(std::string_view tag, double value, std::int64_t step) {
  append(summary_event(step, bytes(1, tag) + number(2, static_cast<float>(value))));
}

void EventFile::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  append(summary_event(step, text_value(fmt::format("{}/text_summary", tag), text)));
}

void EventFile::add_start(std::int64_t step) {
  constexpr int kStart = 1;  // SessionLog.SessionStatus.START
  append(number(1, wall_time()) + integer(2, static_cast<std::uint64_t>(step)) +
         bytes(7, integer(1, kStart)));  // Event.session_log
}

void EventFile::append(const std::string& event) {
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  const std::string record =
      length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event));
  for (std::size_t done = 0; done < record.size();) {
    const ssize_t size = write(descriptor_, record.data() + done, record.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw io_error("cannot write", path_.native(), errno);
    done += static_cast<std::size_t>(size);
  }
}

}  // namespace tandem::report
