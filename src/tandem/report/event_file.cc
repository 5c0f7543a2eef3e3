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
#include <protozero/pbf_writer.hpp>

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

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// --- messages of tensorflow/core/util/event.proto and framework/summary.proto ---

// A message whose fields `write` adds.
template <class Write>
std::string message_of(Write write) {
  std::string bytes;
  protozero::pbf_writer message(bytes);
  write(message);
  return bytes;
}

// Event.wall_time, and the fields that `write` adds.
template <class Write>
std::string event_of(Write write) {
  return message_of([&](protozero::pbf_writer& event) {
    event.add_double(1, wall_time());
    write(event);
  });
}

std::string summary_event(std::int64_t step, const std::string& value) {
  return event_of([&](protozero::pbf_writer& event) {
    event.add_int64(2, step);
    // Event.summary, Summary.value
    event.add_message(5, message_of([&](auto& summary) { summary.add_message(1, value); }));
  });
}

std::string scalar_value(std::string_view tag, float value) {
  return message_of([&](protozero::pbf_writer& message) {
    message.add_string(1, tag.data(), tag.size());
    message.add_float(2, value);
  });
}

// Summary.Value of the plugin "text": a tensor of one string.
std::string text_value(std::string_view tag, std::string_view text) {
  constexpr int kString = 7;                                              // DataType.DT_STRING
  const auto one = message_of([](auto& size) { size.add_int64(1, 1); });  // a dimension of size 1
  const auto shape = message_of([&](auto& message) { message.add_message(2, one); });
  const auto tensor = message_of([&](auto& message) {
    message.add_enum(1, kString);
    message.add_message(2, shape);
    message.add_string(8, text.data(), text.size());
  });
  const auto plugin = message_of([](auto& message) { message.add_string(1, "text"); });
  return message_of([&](protozero::pbf_writer& message) {
    message.add_string(1, tag.data(), tag.size());
    message.add_message(8, tensor);
    message.add_message(9, message_of([&](auto& metadata) { metadata.add_message(1, plugin); }));
  });
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
  static std::atomic<int> count{0};  // files of this process, as torch counts
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
  append(event_of([](auto& event) { event.add_string(3, "brain.Event:2"); }));  // file_version
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void EventFile::add_scalar(std::string_view tag, double value, std::int64_t step) {
  append(summary_event(step, scalar_value(tag, static_cast<float>(value))));
}

void EventFile::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  append(summary_event(step, text_value(fmt::format("{}/text_summary", tag), text)));
}

void EventFile::add_start(std::int64_t step) {
  append(event_of([&](auto& event) {
    event.add_int64(2, step);
    // Event.session_log, SessionLog.status: START
    event.add_message(7, message_of([](auto& log) { log.add_enum(1, 1); }));
  }));
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
