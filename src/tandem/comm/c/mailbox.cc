#include "tandem/comm/c/mailbox.h"

#include <algorithm>
#include <cstring>

#include "tandem/core/error.h"

namespace tandem::comm::c {
namespace {

// tdmSend and tdmRecv use stream 0.
constexpr int kMailboxStream = 1;

bool accepts(const PostedReceive& posted, int peer, const Envelope& envelope) {
  return (posted.peer < 0 || posted.peer == peer) && (posted.tag < 0 || posted.tag == envelope.tag);
}

}  // namespace

Mailbox::Mailbox(Communicator& communicator)
    : communicator_(communicator), peers_(static_cast<std::size_t>(communicator.size())) {}

std::unique_ptr<PostedSend> Mailbox::send(const std::byte* data, DataType type, std::size_t count,
                                          int peer, int tag) {
  auto posted = std::make_unique<PostedSend>();
  posted->envelope = {tag, count, static_cast<std::uint32_t>(type), 0};
  posted->head = communicator_.start_send<std::byte>(std::as_bytes(std::span(&posted->envelope, 1)),
                                                     peer, kMailboxStream);
  if (count > 0) {
    posted->body = communicator_.start_send_bytes({data, count * size_of(type)}, type, count, peer,
                                                  kMailboxStream);
  }
  return posted;
}

void Mailbox::check(const PostedReceive& posted, int peer, const Envelope& envelope) const {
  const auto type = static_cast<DataType>(envelope.type);
  if (posted.type == type && posted.count == envelope.count) return;
  const std::string text = fmt::format(
      "{} sent {} {} with tag {}, {} receives {} {}: both must be equal",
      communicator_.describe_rank(peer), envelope.count, name_of(type), envelope.tag,
      communicator_.describe_rank(communicator_.rank()), posted.count, name_of(posted.type));
  communicator_.life().abort(text);
  raise<CommError>("{}", text);
}

bool Mailbox::take_early(PostedReceive& posted, int peer) {
  Incoming& incoming = peers_[static_cast<std::size_t>(peer)];
  auto& early = incoming.early;
  // The last one may still be in flight.
  const bool filling = incoming.state == Incoming::kBody && incoming.into == nullptr;
  const auto end = early.end() - (filling ? 1 : 0);
  const auto found = std::find_if(
      early.begin(), end, [&](const Early& one) { return accepts(posted, peer, one.envelope); });
  if (found == end) return false;
  check(posted, peer, found->envelope);
  if (!found->data.empty()) std::memcpy(posted.data, found->data.data(), found->data.size());
  posted.source = peer;
  posted.done = true;
  early.erase(found);
  return true;
}

void Mailbox::receive(const std::shared_ptr<PostedReceive>& posted) {
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    if (posted->peer >= 0 && posted->peer != peer) continue;
    if (take_early(*posted, peer)) return;
  }
  posted_.push_back(posted);
  advance();
}

void Mailbox::forget(const std::shared_ptr<PostedReceive>& posted) { posted_.remove(posted); }

bool Mailbox::is_wanted(int peer) const {
  return peer != communicator_.rank() &&
         std::any_of(posted_.begin(), posted_.end(),
                     [&](const auto& posted) { return posted->peer < 0 || posted->peer == peer; });
}

std::shared_ptr<PostedReceive> Mailbox::take_match(int peer, const Envelope& envelope) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const auto& posted) {
    return accepts(*posted, peer, envelope);
  });
  if (found == posted_.end()) return nullptr;
  std::shared_ptr<PostedReceive> posted = *found;
  posted_.erase(found);
  return posted;
}

void Mailbox::start_body(int peer) {
  Incoming& incoming = peers_[static_cast<std::size_t>(peer)];
  const Envelope& envelope = incoming.envelope;
  // A size sent by another machine is accepted only if the message fits in memory.
  if (envelope.type > static_cast<std::uint32_t>(DataType::kFloat16) ||
      envelope.count > std::size_t{1} << 48) {
    raise<CommError>("{} sent an envelope of type {} and {} elements: not one of this library",
                     communicator_.describe_rank(peer), envelope.type, envelope.count);
  }
  const auto type = static_cast<DataType>(envelope.type);
  const std::size_t bytes = envelope.count * size_of(type);
  incoming.into = take_match(peer, envelope);
  if (incoming.into != nullptr) check(*incoming.into, peer, envelope);
  if (incoming.into == nullptr) incoming.early.push_back({envelope, std::vector<std::byte>(bytes)});
  std::byte* data =
      incoming.into != nullptr ? incoming.into->data : incoming.early.back().data.data();
  incoming.state = Incoming::kBody;
  incoming.request = {};
  if (bytes > 0) {
    incoming.request = communicator_.start_receive_bytes({data, bytes}, type, envelope.count, peer,
                                                         kMailboxStream);
  }
}

void Mailbox::end_body(int peer) {
  Incoming& incoming = peers_[static_cast<std::size_t>(peer)];
  incoming.state = Incoming::kIdle;
  --in_flight_;
  if (incoming.into != nullptr) {
    incoming.into->source = peer;
    incoming.into->done = true;
    incoming.into.reset();
    return;
  }
  // A receive for it may have been posted meanwhile.
  const auto posted = take_match(peer, incoming.early.back().envelope);
  if (posted != nullptr) take_early(*posted, peer);
}

// One step of the messages from `peer`; returns whether another one is possible.
bool Mailbox::step(int peer) {
  Incoming& incoming = peers_[static_cast<std::size_t>(peer)];
  if (incoming.state == Incoming::kIdle) {
    if (!is_wanted(peer)) return false;
    incoming.request = communicator_.start_receive<std::byte>(
        std::as_writable_bytes(std::span(&incoming.envelope, 1)), peer, kMailboxStream);
    incoming.state = Incoming::kEnvelope;
    ++in_flight_;
  }
  if (!incoming.request.done()) return false;
  if (incoming.state == Incoming::kEnvelope) {
    start_body(peer);
  } else {
    end_body(peer);
  }
  return true;
}

void Mailbox::advance() {
  if (!expects_something()) return;
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    while (step(peer)) {
    }
  }
}

const Request& Mailbox::next_of(int peer) const {
  return peers_[static_cast<std::size_t>(peer)].request;
}

}  // namespace tandem::comm::c
