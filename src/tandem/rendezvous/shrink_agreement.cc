#include "tandem/rendezvous/shrink_agreement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/net/connect.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/frame.h"
#include "tandem/net/pending_connections.h"
#include "tandem/net/rank_handshake.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;

// Sleeps are short so that deaths in ShrinkPeers are noticed.
constexpr milliseconds kPollTimeout{20};
constexpr milliseconds kShrinkIntroduction{10000};
// Ranks that wait for the host wait this much longer than the host: its message names the missing
// ranks.
constexpr milliseconds kShrinkGrace{2000};
constexpr milliseconds kSendLimit{2000};

// A rank sends a RankHandshake and a request: the key (u64) and the ranks that it excludes. The
// host answers with a verdict: the members and the bootstrap address or an error. A list of ranks
// is a count (u32) and i32s.
enum Kind : std::uint32_t { kContinue, kRefused, kDisagree, kComeBack, kRequest, kNumKinds };

net::FrameProtocol protocol_of(std::size_t num_ranks) {
  constexpr std::size_t kMostText = 65536;
  return {"the shrink agreement", 0x6d444e41, kNumKinds,
          16 + num_ranks * sizeof(std::int32_t) + kMostText};
}

std::string bytes_of_ranks(const std::vector<int>& ranks) {
  std::string bytes(net::view_of(static_cast<std::uint32_t>(ranks.size())));
  for (const int rank : ranks) bytes += net::view_of(static_cast<std::int32_t>(rank));
  return bytes;
}

std::vector<int> read_ranks(net::PlainReader& reader) {
  std::vector<int> ranks;
  for (auto left = reader.value<std::uint32_t>(); left > 0; --left)
    ranks.push_back(reader.value<std::int32_t>());
  return ranks;
}

std::string list(const std::vector<int>& ranks) {
  return ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, ", "));
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

// ---- the rank at which the others meet ----

class ShrinkAgreement::Host {
 public:
  explicit Host(ShrinkAgreement& shrink_agreement)
      : shrink_agreement_(shrink_agreement),
        options_(shrink_agreement.options_),
        protocol_(protocol_of(shrink_agreement.listen_addresses_.size())),
        pending_(kShrinkIntroduction, 4 * shrink_agreement.listen_addresses_.size() + 256) {
    challenge_.rank = static_cast<std::uint32_t>(options_.rank);
    challenge_.listener =
        shrink_agreement.listen_addresses_[static_cast<std::size_t>(options_.rank)].listener;
  }

  Agreement run(const net::Deadline& deadline) {
    while (!missing().empty()) {
      shrink_agreement_.check_expelled();
      if (deadline.passed()) {
        if (shrink_agreement_.peers_.may_leave_behind()) break;
        fail(kRefused,
             fmt::format("{} waited {:.1f} s for {} to call shrink as well; exclude ranks that do "
                         "not, or abort the communicator",
                         self(), deadline.elapsed_seconds(), describe(missing())));
      }
      poll_once(deadline);
    }
    return decide(deadline);
  }

 private:
  std::string self() const { return shrink_agreement_.peers_.describe(options_.rank); }

  std::string describe(const std::vector<int>& ranks) const {
    std::string text;
    for (const int rank : ranks) {
      text += (text.empty() ? "" : ", ") + shrink_agreement_.peers_.describe(rank);
    }
    return text;
  }

  // Members that may still connect.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (const int rank : options_.members) {
      const bool expected = rank != options_.rank && !contains(options_.excluded, rank);
      if (expected && !clients_.contains(rank) && !shrink_agreement_.peers_.gone(rank))
        ranks.push_back(rank);
    }
    return ranks;
  }

  void poll_once(const net::Deadline& deadline) {
    net::EventLoop loop;
    // A rank sends nothing while it waits: it has exited, or has connected again.
    for (const auto& client : clients_)
      loop.read(client.second, [this, rank = client.first] { clients_.erase(rank); });
    pending_.add_listener(shrink_agreement_.listener_, loop);
    pending_.add_to(loop);
    loop.until(deadline);
    loop.run_once(kPollTimeout);
    pending_.accept_from(shrink_agreement_.listener_,
                         [&] { return std::string(net::view_of(challenge_)); });
    const auto wanted = [this](const std::string& received) {
      return introduction_bytes(received);
    };
    while (auto connection = pending_.take_complete(wanted)) welcome(*connection);
  }

  bool is_genuine(const net::RankHandshake& rank_handshake) const {
    const std::vector<net::ListenAddress>& listen_addresses = shrink_agreement_.listen_addresses_;
    return rank_handshake.magic == net::RankHandshake().magic && net::is_whole(rank_handshake) &&
           rank_handshake.kind == net::ConnectionKind::kShrinkAgreement &&
           rank_handshake.secret ==
               listen_addresses[static_cast<std::size_t>(options_.rank)].secret &&
           rank_handshake.rank < listen_addresses.size() &&
           rank_handshake.target == static_cast<std::uint32_t>(options_.rank);
  }

  // Length of a rank's request in bytes; 0: not a rank. If authentication fails, nothing after the
  // handshake is read.
  std::size_t introduction_bytes(const std::string& received) const {
    if (received.size() < sizeof(net::RankHandshake)) return sizeof(net::RankHandshake);
    if (!is_genuine(net::read_as<net::RankHandshake>(received))) return 0;
    try {
      return sizeof(net::RankHandshake) +
             net::frame_bytes(protocol_,
                              std::string_view(received).substr(sizeof(net::RankHandshake)));
    } catch (const CommError&) {  // a damaged request is sent again
      return 0;
    }
  }

  struct Request {
    std::uint64_t key = 0;
    std::vector<int> excluded;
  };
  // Nothing if it is damaged; it is sent again.
  std::optional<Request> read_request(std::string_view bytes) const {
    try {
      const auto frame = net::decode_frame(protocol_, bytes);
      if (!frame || frame->kind != kRequest) return std::nullopt;
      net::PlainReader reader(frame->payload, protocol_.name);
      Request request;
      request.key = reader.value<std::uint64_t>();
      request.excluded = read_ranks(reader);
      return request;
    } catch (const CommError&) {
      return std::nullopt;
    }
  }

  void welcome(net::PendingConnection& connection) {
    const auto rank_handshake = net::read_as<net::RankHandshake>(connection.received);
    const auto request =
        read_request(std::string_view(connection.received).substr(sizeof rank_handshake));
    if (!request) return;
    const std::vector<int>& excluded = request->excluded;
    const int rank = static_cast<int>(rank_handshake.rank);
    // A communicator split from the same one; this rank serves it when it calls shrink on it.
    if (request->key != options_.key) return answer(connection.socket, kComeBack, {}, "");
    if (contains(options_.excluded, rank)) {
      return answer(
          connection.socket, kRefused, {},
          fmt::format("{} was excluded by {}: it must not call shrink", describe({rank}), self()));
    }
    if (shrink_agreement_.peers_.gone(rank)) {
      return answer(connection.socket, kRefused, {},
                    fmt::format("{} cannot shrink with the others: {} counts it as dead",
                                describe({rank}), self()));
    }
    clients_[rank] = std::move(connection.socket);
    if (excluded == options_.excluded) return;
    fail(kDisagree,
         fmt::format(
             "the ranks disagree on the ranks to exclude: {} excludes {}, {} excludes {} (ranks "
             "of the job)",
             self(), list(options_.excluded), describe({rank}), list(excluded)));
  }

  void answer(const net::FileDescriptor& socket, Kind verdict, const std::vector<int>& members,
              const std::string& text) const {
    const std::string bytes =
        net::encode_frame(protocol_, verdict, {bytes_of_ranks(members), text});
    // A rank that does not receive it has exited, which the new communicator detects.
    net::send_all(socket, std::as_bytes(std::span(bytes)), net::Deadline(kSendLimit));
  }

  [[noreturn]] void fail(Kind verdict, const std::string& message) const {
    for (const auto& [rank, socket] : clients_) answer(socket, verdict, {}, message);
    if (verdict == kDisagree) throw ConfigError(message);
    throw CommError(message);
  }

  Agreement decide(const net::Deadline& deadline) {
    Agreement agreement;
    for (const int rank : options_.members) {
      const bool came = clients_.contains(rank) && !shrink_agreement_.peers_.gone(rank);
      if (rank == options_.rank || came) agreement.members.push_back(rank);
    }
    if (shrink_agreement_.peers_.may_leave_behind()) leave_behind(agreement.members, deadline);
    agreement.address = open_bare_address(options_.loopback_only);
    for (const auto& [rank, socket] : clients_) {
      answer(socket, kContinue, agreement.members, agreement.address.text);
    }
    agreement.address.text = address_at(agreement.address.text, "127.0.0.1");
    return agreement;
  }

  // Ranks that are alive but excluded are notified, instead of waiting for their deadline.
  void leave_behind(const std::vector<int>& members, const net::Deadline& deadline) {
    for (const int rank : options_.members) {
      if (contains(members, rank) || shrink_agreement_.peers_.gone(rank)) continue;
      const std::string why = contains(options_.excluded, rank)
                                  ? "it was excluded"
                                  : fmt::format("it had not called shrink {:.1f} s after {}",
                                                deadline.elapsed_seconds(), self());
      shrink_agreement_.peers_.expel(
          rank, fmt::format("the other ranks continued without {}: {}", describe({rank}), why));
    }
  }

  ShrinkAgreement& shrink_agreement_;
  const ShrinkAgreementOptions& options_;
  net::FrameProtocol protocol_;
  net::PendingConnections pending_;
  net::RankChallenge challenge_;
  std::map<int, net::FileDescriptor> clients_;
};

// ---- the others ----

class ShrinkAgreement::Client {
 public:
  Client(ShrinkAgreement& shrink_agreement, int host)
      : shrink_agreement_(shrink_agreement),
        protocol_(protocol_of(shrink_agreement.listen_addresses_.size())),
        host_(host) {}

  // Returns nothing if a new host must be found.
  std::optional<Agreement> run(const net::Deadline& deadline) {
    std::string address;
    const net::FileDescriptor socket = reach(deadline, address);
    if (!socket) return {};
    const std::optional<net::Frame> answer = receive(socket, deadline, address);
    if (!answer || answer->kind == kComeBack || answer->kind == kRequest) return {};
    net::PlainReader reader(answer->payload, protocol_.name);
    Agreement agreement;
    agreement.members = read_ranks(reader);
    const std::string text(reader.rest());
    if (answer->kind == kDisagree) throw ConfigError(text);
    if (answer->kind == kRefused) throw CommError(text);
    agreement.address.text = address_at(text, address);
    return agreement;
  }

 private:
  // The host has decided, and does not send its answer again.
  [[noreturn]] void raise_damage(const std::string& address) const {
    raise<CommError>(
        "the link from {} at {} to {} is damaged: its answer arrived with a wrong checksum; check "
        "the network cards, cables and switches between these two hosts",
        shrink_agreement_.peers_.describe(host_), address,
        shrink_agreement_.peers_.describe(shrink_agreement_.options_.rank));
  }

  net::FileDescriptor reach(const net::Deadline& deadline, std::string& address) {
    const net::ListenAddress& listen_address =
        shrink_agreement_.listen_addresses_[static_cast<std::size_t>(host_)];
    net::Handshake handshake;
    handshake.answer_bytes = sizeof(net::RankChallenge);
    handshake.accept = [&](const std::string& bytes) {
      return net::is_greeting_of(bytes, static_cast<std::size_t>(host_), listen_address.listener);
    };
    std::string failure;
    net::Connected found = net::connect_first(listen_address.addresses, listen_address.port,
                                              handshake, deadline, failure);
    if (!found.socket) return {};
    address = found.address;
    net::RankHandshake rank_handshake;
    rank_handshake.kind = net::ConnectionKind::kShrinkAgreement;
    rank_handshake.secret = listen_address.secret;
    rank_handshake.rank = static_cast<std::uint32_t>(shrink_agreement_.options_.rank);
    rank_handshake.target = static_cast<std::uint32_t>(host_);
    const std::string bytes =
        std::string(net::view_of(net::sealed(rank_handshake))) +
        net::encode_frame(protocol_, kRequest,
                          {net::view_of(shrink_agreement_.options_.key),
                           bytes_of_ranks(shrink_agreement_.options_.excluded)});
    if (net::send_all(found.socket, std::as_bytes(std::span(bytes)), net::Deadline(kSendLimit)) !=
        net::IoStatus::kDone) {
      return {};
    }
    return std::move(found.socket);
  }

  // The host's answer; nothing if the host has exited or is known to be lost.
  std::optional<net::Frame> receive(const net::FileDescriptor& socket,
                                    const net::Deadline& deadline, const std::string& address) {
    while (!shrink_agreement_.peers_.gone(host_)) {
      shrink_agreement_.check_expelled();
      if (net::wait_readable(socket.get(), net::Deadline(kPollTimeout))) break;
      if (deadline.elapsed_seconds() >
          deadline.limit_seconds() + 1e-3 * double(kShrinkGrace.count()))
        return {};
    }
    net::FrameReader reader(protocol_);
    const net::Deadline limit(kSendLimit);
    while (true) {
      const std::optional<int> end = reader.read_from(socket);
      try {
        if (auto answer = reader.take()) return answer;
      } catch (const net::DamagedFrame&) {
        raise_damage(address);
      } catch (const CommError&) {
        return {};
      }
      if (end || limit.passed()) return {};
      net::wait_readable(socket.get(), limit);
    }
  }

  ShrinkAgreement& shrink_agreement_;
  net::FrameProtocol protocol_;
  int host_;
};

// ---- which ranks meet ----

ShrinkAgreement::ShrinkAgreement(const net::FileDescriptor& listener,
                                 const std::vector<net::ListenAddress>& listen_addresses,
                                 ShrinkPeers& peers, ShrinkAgreementOptions options)
    : listener_(listener),
      listen_addresses_(listen_addresses),
      peers_(peers),
      options_(std::move(options)) {}

int ShrinkAgreement::find_host() const {
  for (const int rank : options_.members) {
    if (rank == options_.rank) break;
    if (!contains(options_.excluded, rank) && !peers_.gone(rank)) return rank;
  }
  return options_.rank;
}

void ShrinkAgreement::check_expelled() const {
  if (!peers_.gone(options_.rank)) return;
  raise<CommError>("{} cannot shrink with the others, which excluded it: {}",
                   peers_.describe(options_.rank), peers_.why_expelled());
}

Agreement ShrinkAgreement::meet(const net::Deadline& deadline) {
  while (true) {
    check_expelled();
    const int host = find_host();
    if (host == options_.rank) return Host(*this).run(deadline);
    std::optional<Agreement> agreement = Client(*this, host).run(deadline);
    if (agreement) return std::move(*agreement);
    if (deadline.passed()) {
      raise<CommError>(
          "{} waited {:.1f} s for {} to lead the shrink agreement, but that rank has not called "
          "shrink",
          peers_.describe(options_.rank), deadline.elapsed_seconds(), peers_.describe(host));
    }
    std::this_thread::sleep_for(kPollTimeout);
  }
}

}  // namespace tandem::rendezvous
