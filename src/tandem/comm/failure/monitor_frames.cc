// The control messages of a monitor: frames with checksums, over the connections to other ranks.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tandem/comm/algorithms/call.h"
#include "tandem/comm/failure/control_message.h"
#include "tandem/comm/failure/monitor.h"
#include "tandem/core/error.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::string encode(const ControlMessage& message) {
  return net::encode_frame(kControlProtocol, static_cast<std::uint32_t>(message.kind),
                           {net::view_of(message.subject), net::view_of(message.other),
                            std::string_view(message.text).substr(0, kMostControlText)});
}

std::optional<ControlMessage> control_message_from(const net::Frame& frame) {
  ControlMessage message;
  if (frame.payload.size() < kControlRanks) return std::nullopt;
  message.kind = static_cast<ControlKind>(frame.kind);
  message.subject = net::read_as<std::int32_t>(frame.payload);
  message.other = net::read_as<std::int32_t>(frame.payload.substr(sizeof message.subject));
  message.text = frame.payload.substr(kControlRanks);
  return message;
}

void Monitor::read_control(std::size_t rank) {
  Watched& watched = watched_[rank];
  watched.last_received = Clock::now();
  const std::optional<int> end = watched.received.read_from(watched.control);
  take_frames(rank);
  if (!end) return;
  control_ended(rank, *end == 0            ? "its connections closed without a goodbye"
                      : *end == ECONNRESET ? "its connections were reset"
                                           : std::strerror(*end));
}

void Monitor::take_frames(std::size_t rank) {
  net::FrameReader& received = watched_[rank].received;
  while (true) {
    std::optional<net::Frame> frame;
    try {
      frame = received.take();
    } catch (const CommError&) {
      report_damage(rank, "a control message arrived with a wrong checksum");
      received.skip_damage();
      continue;
    }
    if (!frame) return;
    if (const auto message = control_message_from(*frame)) take_message(rank, *message);
  }
}

void Monitor::take_message(std::size_t rank, const ControlMessage& message) {
  const auto is_rank = [&](std::int32_t r) {
    return r >= 0 && static_cast<std::size_t>(r) < peers_.size();
  };
  const std::string& text = message.text;
  const auto passed_on = [&] { return fmt::format("{} (reported by rank {})", text, rank); };
  if (message.kind == ControlKind::kGoodbye) {
    departed_.left[rank].store(true, std::memory_order_release);
  } else if (message.kind == ControlKind::kHeartbeat) {
    take_heartbeat(rank, text);
  } else if (message.kind == ControlKind::kExpelled) {
    if (is_rank(message.subject)) mark_gone(static_cast<std::size_t>(message.subject), text);
    // A rank that is expelled while it runs gets the error from its next call.
    if (message.subject == options_.rank && failure_.claim(text)) failure_.publish();
  } else if (message.kind == ControlKind::kDamage && is_rank(message.subject) &&
             is_rank(message.other)) {
    spread(passed_on(), text, {.damaged = LinkEnds{message.subject, message.other}});
  } else {
    if (is_rank(message.subject)) mark_gone(static_cast<std::size_t>(message.subject), text);
    // Forwarded, so that the cause arrives everywhere before the end of this rank's connections.
    spread(passed_on(), text, {.dead = message.subject});
  }
}

void Monitor::take_heartbeat(std::size_t rank, const std::string& text) {
  Activity activity;
  if (text.size() == sizeof activity) std::memcpy(&activity, text.data(), sizeof activity);
  {
    const std::lock_guard lock(activity_mutex_);
    if (!(activity == watched_[rank].activity)) watched_[rank].activity_since = Clock::now();
    watched_[rank].activity = activity;
  }
  compare_calls(rank, activity.call);
}

// The other rank is in this call; compares it with this rank's call at the same sequence number. If
// this rank has not reached that number, it has nothing to compare, and the other rank reports the
// difference later.
void Monitor::compare_calls(std::size_t rank, const FlightRecorder::Entry& theirs) {
  if (theirs.communicator == 0 || options_.recorder == nullptr || failure_.is_set()) return;
  const auto own = options_.recorder->find_collective(theirs.communicator, theirs.sequence);
  if (!own || own->history == theirs.history) return;
  report(disagreement(peers_[rank].describe(), describe(theirs),
                      peers_[static_cast<std::size_t>(options_.rank)].describe(), describe(*own)));
}

void Monitor::report_damage(std::size_t rank, const std::string& what) noexcept {
  if (failure_.is_set()) return;
  try {
    const std::string message = fmt::format(
        "the link from {} to {} is damaged: {}; no byte of it was used. Check the network cards, "
        "cables and switches between these two hosts (ethtool -S INTERFACE shows their errors)",
        peers_[rank].describe(), peers_[static_cast<std::size_t>(options_.rank)].describe(), what);
    spread(message, message, {.damaged = LinkEnds{static_cast<int>(rank), options_.rank}});
  } catch (...) {  // no memory: the receiver of the frame finds its connection closed
  }
}

// Heartbeats go to the ranks that expect them, all other messages to all ranks.
// Small frames fit into empty socket buffers. If one does not fit, the peer has already failed.
void Monitor::send_to_all(ControlKind kind, const std::string& text, int subject,
                          int other) noexcept {
  const std::string bytes = encode({kind, text, subject, other});
  const std::lock_guard lock(send_mutex_);
  for (const Watched& watched : watched_) {
    if (kind == ControlKind::kHeartbeat && !watched.sends_heartbeats) continue;
    if (watched.control)
      ::send(watched.control.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

}  // namespace tandem::comm
