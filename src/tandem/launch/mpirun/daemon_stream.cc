#include "tandem/launch/mpirun/daemon_stream.h"

#include "tandem/net/plain_bytes.h"

namespace tandem::launch {
namespace {

constexpr net::FrameStreamLimits kLimits{.most_unsent = std::size_t{256} << 20,
                                         .most_noise = std::size_t{64} << 10};

}  // namespace

DaemonStream::DaemonStream(net::FileDescriptor in, net::FileDescriptor out, bool starts)
    : stream_(net::FrameReader(kProtocol), std::move(in), std::move(out), kLimits),
      handshake_done_(starts) {
  if (starts) send({DaemonMessage::Kind::kHandshake, -1, std::string(kVersion)});
}

void DaemonStream::send(const DaemonMessage& message) {
  stream_.send(static_cast<std::uint32_t>(message.kind),
               {net::view_of(static_cast<std::int32_t>(message.rank)), message.payload});
}

std::optional<DaemonMessage> DaemonStream::take() {
  if (!handshake_done_) return std::nullopt;
  const std::optional<net::Frame> frame = stream_.take();
  if (!frame) return std::nullopt;
  if (frame->payload.size() < sizeof(std::int32_t)) {
    error_ = "it sent a message without a rank";
    return std::nullopt;
  }
  return DaemonMessage{static_cast<DaemonMessage::Kind>(frame->kind),
                       net::read_as<std::int32_t>(frame->payload),
                       frame->payload.substr(sizeof(std::int32_t))};
}

void DaemonStream::serve() {
  stream_.serve();
  if (handshake_done_ || !ended().empty()) return;
  const std::optional<net::Frame> frame = stream_.take();
  if (!frame) return;
  if (frame->kind == static_cast<std::uint32_t>(DaemonMessage::Kind::kHandshake) &&
      frame->payload.ends_with(kVersion))
    handshake_done_ = true;
  else
    error_ = "it is not tandem of this version";
}

}  // namespace tandem::launch
