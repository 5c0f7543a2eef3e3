#include "tandem/comm/network/plugin_transport.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Packets posted per peer: as many short messages can arrive between two polls of this rank.
constexpr int kPostedPackets = 4;
// Some libraries have no limit.
constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30;
// Replaces Header::magic: the sender closes, nothing follows.
constexpr std::uint32_t kGoodbyeMagic = 0x6d444e47;
// The library may see a closed connection before the monitor has the reason.
constexpr milliseconds kPluginVerdict{300};
// If the library has nothing to sleep on: first yield to other threads, then sleep briefly.
constexpr int kYields = 50;
constexpr microseconds kShortSleep{50};

}  // namespace

PluginTransport::PluginTransport(PluginFabric fabric, const std::vector<Peer>& peers, int rank,
                                 milliseconds timeout, Monitor& monitor, Failure& failure)
    : fabric_(std::move(fabric)),
      description_(fabric_.describe()),
      rank_(static_cast<std::size_t>(rank)),
      piece_bytes_(std::min(fabric_.plugin().max_message_bytes(fabric_.get()), kMaxPieceBytes)),
      timeout_(timeout),
      links_(peers.size()),
      inboxes_(peers, rank_, monitor),
      peers_(peers),
      monitor_(monitor),
      failure_(failure) {
  for (std::size_t peer = 0; peer < peers.size(); ++peer) {
    links_[peer].broken = peer == rank_;
    for (int i = 0; i < kPostedPackets && peer != rank_; ++i) post_packet(peer);
  }
  failure_.before_raise([this] { fabric_.close(/*in_order=*/false); });
}

PluginTransport::~PluginTransport() {
  failure_.before_raise({});
  if (!stopped()) fabric_.close(end_in_order());
}

// ---- the interface ----

std::shared_ptr<const Message> PluginTransport::send(int peer, const Header& header,
                                                     std::span<const std::byte> bytes) {
  auto message = std::make_shared<Message>();
  message->peer = peer;
  message->sending = true;
  message->header = header;
  const auto index = static_cast<std::size_t>(peer);
  auto outgoing = std::make_shared<Outgoing>();
  outgoing->message = message;
  outgoing->pieces = 1;
  const PacketHead head = head_of(index, header, bytes);
  if (bytes.size() <= kInlineBytes) {
    send_packet(index, head, bytes, outgoing);
    return message;
  }
  outgoing->pieces += (bytes.size() + piece_bytes_ - 1) / piece_bytes_;
  send_packet(index, head, {}, outgoing);
  for (std::size_t begin = 0; begin < bytes.size(); begin += piece_bytes_) {
    const auto piece = bytes.subspan(begin, std::min(piece_bytes_, bytes.size() - begin));
    Operation* operation = take(/*with_packet=*/false);
    operation->tag = TANDEM_FABRIC_BODY;
    operation->sending = true;
    operation->bytes = {const_cast<std::byte*>(piece.data()), piece.size()};  // only read
    operation->outgoing = outgoing;
    start(index, operation);
  }
  return message;
}

std::shared_ptr<const Message> PluginTransport::receive(int peer, const Header& expected,
                                                        std::span<std::byte> bytes) {
  return inboxes_.post(peer, expected, bytes);
}

bool PluginTransport::progress(microseconds max_wait) {
  const Clock::time_point end = Clock::now() + max_wait;
  for (int round = 0;; ++round) {
    if (!inboxes_.disagreed() && !stopped() && poll_library()) return true;
    if (any_broken_) report_broken_links();
    const auto rest = std::chrono::duration_cast<microseconds>(end - Clock::now());
    if (rest <= microseconds(0) || failure_.is_set() || stopped()) return false;
    sleep(rest, round);
  }
}

// ---- operations ----

PluginTransport::Operation* PluginTransport::take(bool with_packet) {
  std::vector<Operation*>& free = with_packet ? free_packets_ : free_bodies_;
  if (free.empty()) {
    operations_.push_back(std::make_unique<Operation>());
    if (with_packet) operations_.back()->packet = std::make_unique<Packet>();
    free.push_back(operations_.back().get());
  }
  Operation* operation = free.back();
  free.pop_back();
  operation->ended = false;
  return operation;
}

void PluginTransport::give_back(Operation* operation) {
  operation->outgoing.reset();
  operation->arriving.reset();
  (operation->packet ? free_packets_ : free_bodies_).push_back(operation);
}

// Behind those that already wait: the order within a tag is the order of the messages.
void PluginTransport::start(std::size_t peer, Operation* operation) {
  Link& link = links_[peer];
  operation->peer = peer;
  if (stopped()) return;
  if (operation->sending) ++link.sends_under_way;
  if (operation->arriving) ++link.bodies_under_way;
  std::deque<Operation*>& waiting = operation->sending ? link.waiting_sends : link.waiting_receives;
  if (waiting.empty() && try_start(*operation)) return;
  waiting.push_back(operation);
  ++num_waiting_;
}

bool PluginTransport::try_start(const Operation& operation) {
  const tandem_transport_plugin& plugin = fabric_.plugin();
  const auto peer = static_cast<std::int32_t>(operation.peer);
  void* context = const_cast<Operation*>(&operation);
  const int result = operation.sending
                         ? plugin.send(fabric_.get(), peer, operation.tag, operation.bytes.data(),
                                       operation.bytes.size(), context)
                         : plugin.receive(fabric_.get(), peer, operation.tag,
                                          operation.bytes.data(), operation.bytes.size(), context);
  if (result == TANDEM_FABRIC_FAILED) operation_ended(const_cast<Operation*>(&operation), true);
  return result != TANDEM_FABRIC_AGAIN;
}

bool PluginTransport::start_waiting() {
  bool moved = false;
  for (std::size_t peer = 0; peer < links_.size() && num_waiting_ > 0; ++peer) {
    for (auto* waiting : {&links_[peer].waiting_receives, &links_[peer].waiting_sends}) {
      while (!waiting->empty() && try_start(*waiting->front())) {
        waiting->pop_front();
        --num_waiting_;
        moved = true;
      }
    }
  }
  return moved;
}

bool PluginTransport::poll_library() {
  std::array<tandem_fabric_completion, 16> completions;
  bool moved = start_waiting();
  while (true) {
    const int count = fabric_.plugin().poll(fabric_.get(), completions.data(),
                                            static_cast<int>(completions.size()));
    for (int i = 0; i < count; ++i) {
      const tandem_fabric_completion& one = completions[static_cast<std::size_t>(i)];
      operation_ended(static_cast<Operation*>(one.context), one.failed != 0);
    }
    moved = moved || count > 0;
    if (count < static_cast<int>(completions.size()) || inboxes_.disagreed()) return moved;
  }
}

void PluginTransport::operation_ended(Operation* operation, bool failed) {
  const std::size_t peer = operation->peer;
  Link& link = links_[peer];
  if (operation->sending) --link.sends_under_way;
  if (failed) {
    if (!link.broken) {
      link.broken = true;
      link.broken_since = Clock::now();
      link.reason = fabric_.plugin().last_error(fabric_.get());
      any_broken_ = true;
    }
    return;  // the operation and the data it refers to stay unchanged: it must not count as done
  }
  if (operation->sending) {
    Outgoing* outgoing = operation->outgoing.get();
    if (outgoing != nullptr && --outgoing->pieces == 0) outgoing->message->complete();
    give_back(operation);
  } else if (operation->arriving) {
    --link.bodies_under_way;
    body_arrived(*operation->arriving, peer);
    give_back(operation);
  } else {
    operation->ended = true;
    read_packets(peer);
  }
}

void PluginTransport::body_arrived(Arriving& arriving, std::size_t peer) {
  if (--arriving.pieces > 0) return;
  const Incoming& incoming = *arriving.incoming;
  const std::uint32_t found = crc32c(incoming.target, arriving.head.frame.checksum);
  if (found == arriving.head.bytes_checksum) return inboxes_.finish(peer, *arriving.incoming);
  report_damage(peer, fmt::format("{} bytes of {} arrived with checksum {:08x}, expected {:08x}",
                                  incoming.header.bytes, comm::describe(incoming.header), found,
                                  arriving.head.bytes_checksum));
}

// ---- packets ----

PluginTransport::PacketHead PluginTransport::head_of(std::size_t peer, const Header& header,
                                                     std::span<const std::byte> bytes) {
  PacketHead head;
  head.frame.header = header;
  head.frame.number = links_[peer].packets_sent++;
  head.frame.checksum = head.frame.sum();
  head.bytes_checksum = crc32c(bytes, head.frame.checksum);
  return head;
}

void PluginTransport::send_packet(std::size_t peer, const PacketHead& head,
                                  std::span<const std::byte> bytes,
                                  std::shared_ptr<Outgoing> outgoing) {
  Operation* operation = take(/*with_packet=*/true);
  std::memcpy(operation->packet->data(), &head, sizeof head);
  if (!bytes.empty())
    std::memcpy(operation->packet->data() + sizeof head, bytes.data(), bytes.size());
  operation->tag = TANDEM_FABRIC_PACKET;
  operation->sending = true;
  operation->bytes = std::span(*operation->packet).first(sizeof head + bytes.size());
  operation->outgoing = std::move(outgoing);
  start(peer, operation);
}

void PluginTransport::post_packet(std::size_t peer) {
  Operation* operation = take(/*with_packet=*/true);
  operation->tag = TANDEM_FABRIC_PACKET;
  operation->sending = false;
  operation->bytes = *operation->packet;
  links_[peer].posted_packets.push_back(operation);
  start(peer, operation);
}

// The library may report packets in any order; they were filled in the order in which they were
// posted.
void PluginTransport::read_packets(std::size_t peer) {
  Link& link = links_[peer];
  while (!link.posted_packets.empty() && link.posted_packets.front()->ended && !link.broken &&
         !inboxes_.disagreed()) {
    Operation* operation = link.posted_packets.front();
    link.posted_packets.pop_front();
    read_packet(peer, *operation->packet);
    give_back(operation);
    if (!link.goodbye_sent) post_packet(peer);
  }
}

void PluginTransport::read_packet(std::size_t peer, const Packet& packet) {
  PacketHead head;
  std::memcpy(&head, packet.data(), sizeof head);
  const Header& header = head.frame.header;
  const std::uint32_t number = links_[peer].packets_received++;
  if (head.frame.sum() != head.frame.checksum || head.frame.number != number) {
    return report_damage(
        peer, fmt::format("the head of packet {} arrived with checksum {:08x}, expected {:08x}",
                          number, head.frame.sum(), head.frame.checksum));
  }
  if (header.magic == kGoodbyeMagic) {
    links_[peer].goodbye_sent = true;
    return;
  }
  std::shared_ptr<Incoming> incoming = inboxes_.begin(peer, header);
  if (!incoming) return;
  if (!incoming->whole()) incoming->grow(header.bytes);  // the library writes all of it at once
  auto arriving = std::make_shared<Arriving>(Arriving{std::move(incoming), 1, head});
  if (header.bytes > kInlineBytes) return receive_body(peer, std::move(arriving));
  if (header.bytes > 0) {
    std::memcpy(arriving->incoming->target.data(), packet.data() + sizeof head, header.bytes);
  }
  body_arrived(*arriving, peer);
}

// No more messages arrive from that rank.
void PluginTransport::report_damage(std::size_t peer, const std::string& what) {
  links_[peer].broken = true;
  monitor_.report_damage(peer, fmt::format("{} over {}", what, description_));
}

void PluginTransport::receive_body(std::size_t peer, std::shared_ptr<Arriving> arriving) {
  const std::span<std::byte> target = arriving->incoming->target;
  arriving->pieces = (target.size() + piece_bytes_ - 1) / piece_bytes_;
  for (std::size_t begin = 0; begin < target.size(); begin += piece_bytes_) {
    Operation* operation = take(/*with_packet=*/false);
    operation->tag = TANDEM_FABRIC_BODY;
    operation->sending = false;
    operation->bytes = target.subspan(begin, std::min(piece_bytes_, target.size() - begin));
    operation->arriving = arriving;
    start(peer, operation);
  }
}

// ---- waiting, breaking, ending ----

void PluginTransport::sleep(microseconds limit, int round) const {
  const int descriptor = num_waiting_ > 0 || inboxes_.disagreed()
                             ? -1
                             : fabric_.plugin().wait_descriptor(fabric_.get());
  if (descriptor < 0 && round < kYields && !inboxes_.disagreed()) {
    ::sched_yield();
    return;
  }
  if (descriptor < 0 && !inboxes_.disagreed()) limit = std::min(limit, kShortSleep);
  std::array<pollfd, 2> waits = {{{failure_.event(), POLLIN, 0}, {descriptor, POLLIN, 0}}};
  const timespec timeout{static_cast<time_t>(limit.count() / 1000000),
                         static_cast<long>(limit.count() % 1000000 * 1000)};
  ::ppoll(waits.data(), descriptor < 0 ? 1 : 2, &timeout, nullptr);
}

void PluginTransport::report_broken_links() {
  for (std::size_t peer = 0; peer < links_.size(); ++peer) {
    const Link& link = links_[peer];
    const bool broken = link.broken_since != Clock::time_point{} && !link.goodbye_sent;
    if (!broken || monitor_.left(static_cast<int>(peer))) continue;
    if (Clock::now() - link.broken_since < kPluginVerdict || failure_.is_set()) continue;
    monitor_.report(fmt::format("{} lost its connection to {}: {} ({})", peers_[rank_].describe(),
                                peers_[peer].describe(), link.reason, description_));
  }
}

bool PluginTransport::unsent() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const Link& link) { return !link.closed() && link.sends_under_way > 0; });
}

// A goodbye follows all messages; the library must have sent it before it is closed.
bool PluginTransport::end_in_order() {
  Header goodbye;
  goodbye.magic = kGoodbyeMagic;
  for (std::size_t peer = 0; peer < links_.size(); ++peer) {
    if (!links_[peer].closed() && !inboxes_.disagreed() && !failure_.is_set())
      send_packet(peer, head_of(peer, goodbye, {}), {}, nullptr);
  }
  const tandem_transport_plugin& plugin = fabric_.plugin();
  const Clock::time_point end = Clock::now() + timeout_;
  for (int round = 0; !failure_.is_set() && !inboxes_.disagreed() && Clock::now() < end; ++round) {
    const bool moved = poll_library();
    if (!unsent() && (plugin.finish == nullptr || plugin.finish(fabric_.get()) == TANDEM_FABRIC_OK))
      return true;
    if (!moved) sleep(milliseconds(10), round);
  }
  return false;
}

}  // namespace tandem::comm
