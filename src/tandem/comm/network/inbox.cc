#include "tandem/comm/network/inbox.h"

#include <algorithm>
#include <cstring>

#include "tandem/comm/algorithms/call.h"
#include "tandem/core/error.h"

namespace tandem::comm {

namespace {

// Initial room for a message that no receive has asked for yet.
constexpr std::size_t kFirstPiece = std::size_t{1} << 20;

}  // namespace

void Incoming::grow(std::size_t bytes) {
  storage.resize(std::min<std::size_t>(header.bytes, bytes));
  target = storage;
}

// Twice the bytes that have arrived: a header alone takes next to no memory.
void Incoming::grow() { grow(std::max(kFirstPiece, 2 * storage.size())); }

std::shared_ptr<const Message> Inbox::post(const Header& expected, std::span<std::byte> bytes) {
  auto message = std::make_shared<Message>();
  message->peer = peer_.rank;
  message->header = expected;
  Stream& stream = streams_[expected.channel];
  stream.posted.push_back({message, bytes});
  deliver(stream);
  return message;
}

std::shared_ptr<Incoming> Inbox::begin(const Header& header) {
  if (disagreed_) return nullptr;
  if (header.magic != Header().magic) {
    disagreed_ = true;
    monitor_.report(fmt::format(
        "{} received an invalid message from {}: the versions or byte orders may differ",
        self_.describe(), peer_.describe()));
    return nullptr;
  }
  Stream& stream = streams_[header.channel];
  auto incoming = std::make_shared<Incoming>();
  incoming->header = header;
  // An older message that arrived before its receive takes precedence over the receives posted
  // since.
  if (!stream.posted.empty() && stream.arrived.empty()) {
    const Posted& posted = stream.posted.front();
    if (!matches(posted.message->header, header)) return nullptr;
    incoming->message = posted.message;
    incoming->target = posted.bytes;
    stream.posted.pop_front();
    return incoming;
  }
  // No posted receive limits the number of bytes.
  if (header.bytes > Incoming::kMostBytes) {
    disagreed_ = true;
    monitor_.report(fmt::format(
        "{} received the header of a message of {} bytes from {}: different versions, or damage",
        self_.describe(), header.bytes, peer_.describe()));
    return nullptr;
  }
  stream.arrived.push_back(incoming);
  return incoming;
}

void Inbox::finish(Incoming& incoming) {
  incoming.complete = true;
  if (incoming.message) {
    incoming.message->complete();
  } else {
    deliver(streams_[incoming.header.channel]);
  }
}

void Inbox::deliver(Stream& stream) {
  while (!disagreed_ && !stream.posted.empty() && !stream.arrived.empty()) {
    const Posted& posted = stream.posted.front();
    const Incoming& arrived = *stream.arrived.front();
    if (!matches(posted.message->header, arrived.header)) return;
    if (!arrived.complete) return;
    if (!arrived.storage.empty())
      std::memcpy(posted.bytes.data(), arrived.storage.data(), arrived.storage.size());
    posted.message->complete();
    stream.posted.pop_front();
    stream.arrived.pop_front();
  }
}

bool Inbox::matches(const Header& expected, const Header& found) {
  if (expected == found) return true;
  disagreed_ = true;
  const std::string size = expected.bytes == found.bytes
                               ? ""
                               : fmt::format(" ({} bytes against {})", found.bytes, expected.bytes);
  monitor_.report(disagreement(peer_.describe(), comm::describe(found), self_.describe(),
                               comm::describe(expected) + size));
  return false;
}

Inboxes::Inboxes(const std::vector<Peer>& peers, std::size_t rank, Monitor& monitor) {
  for (const Peer& peer : peers) inboxes_.emplace_back(peers[rank], peer, monitor);
}

std::shared_ptr<const Message> Inboxes::post(int peer, const Header& expected,
                                             std::span<std::byte> bytes) {
  Inbox& inbox = inboxes_[static_cast<std::size_t>(peer)];
  auto message = inbox.post(expected, bytes);
  disagreed_ = disagreed_ || inbox.disagreed();
  return message;
}

std::shared_ptr<Incoming> Inboxes::begin(std::size_t peer, const Header& header) {
  auto incoming = inboxes_[peer].begin(header);
  disagreed_ = disagreed_ || !incoming;
  return incoming;
}

void Inboxes::finish(std::size_t peer, Incoming& incoming) {
  inboxes_[peer].finish(incoming);
  disagreed_ = disagreed_ || inboxes_[peer].disagreed();
}

}  // namespace tandem::comm
