#include "apps/command/line_output.h"

#include <unistd.h>

#include <cerrno>

#include "tandem/core/error.h"

namespace tandem::apps {
void write_whole(int descriptor, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      throw OutputClosed{};
    } else if (errno != EINTR) {
      throw io_error("cannot write", name, errno);
    }
  }
}

LineOutput::LineOutput(int descriptor, std::string name)
    : std::ostream(nullptr), lines_(descriptor, std::move(name)) {
  rdbuf(&lines_);
  exceptions(std::ios::badbit);  // lets what the buffer throws through
}

LineOutput::~LineOutput() {
  exceptions(std::ios::goodbit);
  flush();
}

LineOutput::Lines::int_type LineOutput::Lines::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof()))
    return traits_type::not_eof(character);
  const char c = traits_type::to_char_type(character);
  xsputn(&c, 1);
  return character;
}

std::streamsize LineOutput::Lines::xsputn(const char* text, std::streamsize size) {
  const std::string_view added(text, static_cast<std::size_t>(size));
  const std::size_t newline = added.rfind('\n');
  if (newline == std::string_view::npos) {
    pending_ += added;
    return size;
  }
  std::string complete;
  complete.swap(pending_);  // forgotten even when writing fails: a second try would fail again
  complete += added.substr(0, newline + 1);
  pending_ = added.substr(newline + 1);
  write_whole(descriptor_, complete, name_);
  return size;
}

int LineOutput::Lines::sync() {
  std::string rest;
  rest.swap(pending_);
  write_whole(descriptor_, rest, name_);
  return 0;
}

}  // namespace tandem::apps
