#include "apps/command/line_output.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      throw OutputClosed{};
    } else if (errno != EINTR) {
      throw io_error("cannot write", "standard output", errno);
    }
  }
}

}  // namespace

LineOutput::LineOutput(int descriptor) : std::ostream(nullptr), lines_(descriptor) {
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
  write_all(descriptor_, complete);
  return size;
}

int LineOutput::Lines::sync() {
  std::string rest;
  rest.swap(pending_);
  write_all(descriptor_, rest);
  return 0;
}

}  // namespace tandem::apps
