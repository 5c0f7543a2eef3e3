#include "apps/command/text_output.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

void require_written_format(const std::string& output, std::span<const std::string_view> written) {
  constexpr std::array<std::string_view, 16> kFormats = {
      ".npy", ".npz", ".parquet", ".csv", ".tsv", ".arrow", ".feather", ".safetensors",
      ".pt",  ".bin", ".pkl",     ".h5",  ".gz",  ".zst",   ".zip",     ".xlsx"};
  const auto is_in = [&](std::span<const std::string_view> endings) {
    return std::find(endings.begin(), endings.end(), fs::path(output).extension()) != endings.end();
  };
  if (is_stream(output) || is_in(written) || !is_in(kFormats)) return;
  raise<ConfigError>("--output {}: expected a name that ends with {}", output,
                     fmt::join(written, ", "));
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
