// The control messages of a monitor: frames with checksums, over the connections to other ranks.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tandem/comm/algorithms/call.h"
#include "tandem/comm/failure/control_header.h"
#include "tandem/comm/failure/monitor.h"
#include "tandem/core/crc32c.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMostReceived = 16 * kMaxText;

// Drops a damaged frame, up to the possible start of the next one: its length field is not
// reliable.
void skip_damage(std::string& received) {
  const std::string_view magic(reinterpret_cast<const char*>(&kControlMagic), sizeof kControlMagic);
  const std::size_t next = received.find(magic, 1);
  received.erase(0, next != received.npos ? next : received.size() - (magic.size() - 1));
}

}  // namespace

void Monitor::read_control(std::size_t rank) {
  Watched& watched = watched_[rank];
  watched.last_received = Clock::now();
  char bytes[kMaxText];
  while (true) {
    const ssize_t count = ::recv(watched.control.get(), bytes, sizeof bytes, 0);
    if (count > 0) {
      watched.received.append(bytes, static_cast<std::size_t>(count));
      // A peer that sends without end must not fill the memory: the remaining bytes wait in the
      // kernel.
      if (watched.received.size() >= kMostReceived) return take_frames(rank);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    const int error_number = count < 0 ? errno : 0;
    take_frames(rank);
    if (error_number == EAGAIN) return;
    return control_ended(rank, error_number == 0 ? "its connections closed without a goodbye"
                               : error_number == ECONNRESET ? "its connections were reset"
                                                            : std::strerror(error_number));
  }
}

void Monitor::take_frames(std::size_t rank) {
  std::string& received = watched_[rank].received;
  while (received.size() >= sizeof(ControlHeader)) {
    ControlHeader header;
    std::memcpy(&header, received.data(), sizeof header);
    bool whole = header.magic == kControlMagic && header.checksum == header.sum() &&
                 header.bytes <= kMaxText;
    if (whole && received.size() < sizeof header + header.bytes) return;
    const std::string text = whole ? received.substr(sizeof header, header.bytes) : "";
    whole = whole && crc32c(text) == header.text_checksum;
    if (!whole) {
      report_damage(rank, "a control message arrived with a wrong checksum");
      skip_damage(received);
      continue;
    }
    received.erase(0, sizeof header + header.bytes);
    take_frame(rank, header, text);
  }
}

void Monitor::take_frame(std::size_t rank, const ControlHeader& header, const std::string& text) {
  const auto is_rank = [&](std::int32_t r) {
    return r >= 0 && static_cast<std::size_t>(r) < peers_.size();
  };
  const auto passed_on = [&] { return fmt::format("{} (reported by rank {})", text, rank); };
  if (header.frame == static_cast<std::uint32_t>(Frame::kGoodbye)) {
    departed_.left[rank].store(true, std::memory_order_release);
  } else if (header.frame == static_cast<std::uint32_t>(Frame::kHeartbeat)) {
    take_heartbeat(rank, text);
  } else if (header.frame == static_cast<std::uint32_t>(Frame::kExpelled)) {
    if (is_rank(header.subject)) mark_gone(static_cast<std::size_t>(header.subject), text);
    // A rank that is expelled while it runs gets the error from its next call.
    if (header.subject == options_.rank && failure_.claim(text)) failure_.publish();
  } else if (header.frame == static_cast<std::uint32_t>(Frame::kDamage) &&
             is_rank(header.subject) && is_rank(header.other)) {
    spread(passed_on(), text, {.damaged = LinkEnds{header.subject, header.other}});
  } else {
    if (is_rank(header.subject)) mark_gone(static_cast<std::size_t>(header.subject), text);
    // Forwarded, so that the cause arrives everywhere before the end of this rank's connections.
    spread(passed_on(), text, {.dead = header.subject});
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
void Monitor::send_to_all(Frame frame, const std::string& whole, int subject, int other) noexcept {
  const std::string_view text = std::string_view(whole).substr(0, kMaxText);
  ControlHeader header;
  header.frame = static_cast<std::uint32_t>(frame);
  header.bytes = static_cast<std::uint32_t>(text.size());
  header.subject = subject;
  header.other = other;
  header.text_checksum = crc32c(text);
  header.checksum = header.sum();
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += text;
  const std::lock_guard lock(send_mutex_);
  for (const Watched& watched : watched_) {
    if (frame == Frame::kHeartbeat && !watched.sends_heartbeats) continue;
    if (watched.control)
      ::send(watched.control.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

}  // namespace tandem::comm
