#include "apps/command/text_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "tandem/core/error.h"

namespace tandem::apps {

namespace fs = std::filesystem;

bool is_stream(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return true;
  return fs::is_symlink(path, ignored) && (path.starts_with("/dev/") || path.starts_with("/proc/"));
}

void require_other_file(const std::string& output, std::string_view flag,
                        const std::string& input) {
  std::error_code ignored;
  if (!fs::is_regular_file(output, ignored) || !fs::equivalent(output, input, ignored)) return;
  raise<ConfigError>("--output {}: found the file of {}, which would be lost; name another file",
                     output, flag);
}

TextOutput::TextOutput(const std::string& path) {
  if (path == "-") {
    stream_.emplace(STDOUT_FILENO);
  } else if (is_stream(path)) {
    opened_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (opened_ < 0) throw io_error("cannot write", path, errno);
    stream_.emplace(opened_, path);
  } else {
    file_.emplace(path);
  }
}

TextOutput::~TextOutput() {
  stream_.reset();
  if (opened_ >= 0) ::close(opened_);
}

void TextOutput::write(std::string_view lines) {
  if (file_)
    file_->write(lines);
  else
    *stream_ << lines;
}

void TextOutput::commit() {
  if (file_) file_->commit();
}

}  // namespace tandem::apps
