// The output of `--output PATH`: whole lines to standard output, a pipe or a file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apps/command/line_output.h"
#include "tandem/core/file.h"

namespace tandem::apps {

// A pipe, a device, or a name of an open file as /dev/stdout. It may be readable only once, and no
// other file can replace it.
bool is_stream(const std::string& path);

// Throws ConfigError if the file `output` is the one that `flag` gives as input: it would be lost.
void require_other_file(const std::string& output, std::string_view flag, const std::string& input);

// Throws ConfigError if `output` has the ending of a data format that is not in `written` (endings
// with their dots), such as .csv: readers would expect that format.
void require_written_format(const std::string& output, std::span<const std::string_view> written);

// Standard output ("-"), a pipe and a device get each write at once. A file appears when it is
// whole, as AtomicFile's; without commit() an old one stays. SIGPIPE must be ignored. Not
// thread-safe.
class TextOutput {
 public:
  // Throws IoError if the path cannot be written.
  explicit TextOutput(const std::string& path);
  ~TextOutput();
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  // `lines` end with a newline. Throws OutputClosed when the reader is gone and IoError that names
  // the path for any other failure.
  void write(std::string_view lines);
  // Throws IoError.
  void commit();

 private:
  int opened_ = -1;  // a pipe or device
  std::optional<LineOutput> stream_;
  std::optional<AtomicFile> file_;
};

}  // namespace tandem::apps
