#include "tandem/net/frame_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::net {
namespace {

void make_nonblocking(const FileDescriptor& descriptor) {
  ::fcntl(descriptor.get(), F_SETFL, ::fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK);
}

std::string reason_of(int error_number) {
  if (error_number == 0) return "its connection ended";
  if (error_number == ETIMEDOUT || error_number == EHOSTUNREACH) return "its host is silent";
  return fmt::format("its connection broke ({})", std::strerror(error_number));
}

}  // namespace

FrameStream::FrameStream(FrameReader reader, FileDescriptor socket, FrameStreamLimits limits)
    : reader_(std::move(reader)), in_(std::move(socket)), limits_(limits) {}

FrameStream::FrameStream(FrameReader reader, FileDescriptor in, FileDescriptor out,
                         FrameStreamLimits limits)
    : reader_(std::move(reader)), in_(std::move(in)), out_(std::move(out)), limits_(limits) {
  make_nonblocking(in_);
  make_nonblocking(out_);
}

void FrameStream::end(const std::string& reason) {
  if (ended_.empty()) ended_ = reason;
}

void FrameStream::send(std::uint32_t kind, std::initializer_list<std::string_view> parts) {
  if (!ended_.empty()) return;
  try {
    unsent_ += encode_frame(reader_.protocol(), kind, parts);
  } catch (const InvalidArgument& error) {
    return end(error.what());
  }
  if (unsent() > limits_.most_unsent) end("it does not read");
  write_out();
}

std::optional<Frame> FrameStream::take() {
  while (true) {
    try {
      std::optional<Frame> frame = reader_.take();
      begun_ = begun_ || frame;
      return frame;
    } catch (const CommError&) {
      if (begun_ || limits_.most_noise == 0) {
        end("it sent something that is not a frame");
        return std::nullopt;
      }
      skipped_ += reader_.skip_damage();
      if (skipped_ <= limits_.most_noise) continue;
      end("it is not tandem of this version");
      return std::nullopt;
    }
  }
}

void FrameStream::write_out() {
  while (ended_.empty() && unsent() > 0) {
    const char* const bytes = unsent_.data() + sent_;
    const ssize_t count = out_ ? ::write(out_.get(), bytes, unsent())
                               : ::send(in_.get(), bytes, unsent(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) {
      const int error_number = errno;
      read_in();  // frames that the peer sent before it closed can still be taken
      return end(reason_of(error_number));
    }
    sent_ += static_cast<std::size_t>(count);
  }
  if (unsent() > 0) return;
  unsent_.clear();
  sent_ = 0;
}

void FrameStream::read_in() {
  if (!ended_.empty()) return;
  if (const std::optional<int> error_number = reader_.read_from(in_)) end(reason_of(*error_number));
}

void FrameStream::serve() {
  write_out();
  read_in();
}

void FrameStream::add_to(EventLoop& loop) const {
  if (!ended_.empty()) return;
  loop.read(in_);
  if (unsent() > 0) loop.write(out());
}

}  // namespace tandem::net
