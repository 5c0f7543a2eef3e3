#include "tandem/launch/mpirun/frame_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tandem/core/error.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::launch {
namespace {

using net::read_as;
using net::view_of;

constexpr std::size_t kHead = sizeof(std::uint32_t) + sizeof(std::uint8_t) + sizeof(std::int32_t);
constexpr std::size_t kMaxNoise = 64 << 10;
constexpr std::size_t kMaxUnsent = std::size_t{256} << 20;

void make_nonblocking(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

}  // namespace

FrameStream::FrameStream(net::FileDescriptor in, net::FileDescriptor out, bool starts)
    : in_(std::move(in)), out_(std::move(out)), handshake_done_(starts) {
  make_nonblocking(in_.get());
  make_nonblocking(out_.get());
  if (starts) unsent_ = kHandshake;
}

void FrameStream::send(const Frame& frame) {
  if (!ended_.empty()) return;
  TANDEM_CHECK(frame.payload.size() <= kMaxPayload);
  unsent_ += view_of(static_cast<std::uint32_t>(frame.payload.size()));
  unsent_ += view_of(static_cast<std::uint8_t>(frame.kind));
  unsent_ += view_of(static_cast<std::int32_t>(frame.rank));
  unsent_ += frame.payload;
  if (unsent() > kMaxUnsent) ended_ = "it does not read";
  write_out();
}

std::optional<Frame> FrameStream::take() {
  const std::string_view bytes = std::string_view(received_).substr(taken_);
  if (!handshake_done_ || bytes.size() < kHead) return std::nullopt;
  const auto size = read_as<std::uint32_t>(bytes);
  const auto kind = read_as<std::uint8_t>(bytes.substr(sizeof size));
  if (size > kMaxPayload || kind > static_cast<std::uint8_t>(Frame::Kind::kAlive)) {
    if (ended_.empty()) ended_ = "it sent something that is not a frame";
    return std::nullopt;
  }
  if (bytes.size() < kHead + size) return std::nullopt;
  Frame frame;
  frame.kind = static_cast<Frame::Kind>(kind);
  frame.rank = read_as<std::int32_t>(bytes.substr(sizeof size + sizeof kind));
  frame.payload = bytes.substr(kHead, size);
  taken_ += kHead + size;
  return frame;
}

void FrameStream::write_out() {
  while (ended_.empty() && unsent() > 0) {
    const ssize_t count = ::write(out_.get(), unsent_.data() + sent_, unsent());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      ended_ = fmt::format("its connection broke ({})", std::strerror(errno));
      return;
    }
    sent_ += static_cast<std::size_t>(count);
  }
  if (unsent() > 0) return;
  unsent_.clear();
  sent_ = 0;
}

// At most one frame is read ahead.
void FrameStream::read_in() {
  received_.erase(0, std::exchange(taken_, 0));
  char bytes[65536];
  while (ended_.empty() && received_.size() <= kMaxPayload + kHead) {
    const ssize_t count = ::read(in_.get(), bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count == 0) ended_ = "its connection ended";
    if (count < 0) ended_ = fmt::format("its connection broke ({})", std::strerror(errno));
    if (count > 0) received_.append(bytes, static_cast<std::size_t>(count));
    if (!handshake_done_) await_greeting();
  }
}

void FrameStream::await_greeting() {
  const std::size_t at = received_.find(kHandshake);
  if (at != std::string::npos) {
    received_.erase(0, at + kHandshake.size());
    handshake_done_ = true;
  } else if (received_.size() > kMaxNoise) {
    ended_ = "it is not tandem of this version";
  }
}

void FrameStream::serve() {
  write_out();
  read_in();
}

void FrameStream::add_to(net::EventLoop& loop) const {
  if (!ended_.empty()) return;
  loop.read(in_);
  if (unsent() > 0) loop.write(out_);
}

}  // namespace tandem::launch
