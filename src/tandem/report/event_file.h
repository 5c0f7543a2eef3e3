// Files that TensorBoard reads: records of protocol buffers, framed with masked CRC-32C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tandem::report {

// One events.out.tfevents file, appended to event by event. Each event is written to the system at
// once, so that a TensorBoard that watches the file sees it and a killed run loses nothing. Not
// thread-safe. All throw IoError.
//
// The messages are tensorflow/core/util/event.proto and framework/summary.proto (brain.Event:2);
// the frame is that of tensorflow/core/lib/io/record_writer. Encoded by hand: six fixed shapes
// need neither the .proto files nor their compiler.
class EventFile {
 public:
  // Makes the directory and in it events.out.tfevents.<seconds>.<host>.<pid>.<n>, with its first
  // event. The seconds are the time, or one more than the latest in a name there: TensorBoard reads
  // files in the order of their names.
  explicit EventFile(const std::filesystem::path& directory);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // torch's SummaryWriter.add_scalar and add_text (whose tag becomes "<tag>/text_summary").
  void add_scalar(std::string_view tag, double value, std::int64_t step);
  void add_text(std::string_view tag, std::string_view text, std::int64_t step);
  // Events of `step` and later in other files of the directory are not shown any more.
  void add_start(std::int64_t step);

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace tandem::report
