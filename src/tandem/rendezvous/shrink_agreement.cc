#include "tandem/rendezvous/shrink_agreement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/net/connect.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/pending_connections.h"
#include "tandem/net/rank_handshake.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;

// Sleeps are short so that deaths in ShrinkPeers are noticed.
constexpr milliseconds kPollTimeout{20};
constexpr milliseconds kIntroduction{10000};
// Ranks that wait for the host wait this much longer than the host: its message names the missing
// ranks.
constexpr milliseconds kGrace{2000};
constexpr milliseconds kSendLimit{2000};
constexpr std::uint32_t kMaxRanks = 1u << 20;

// Request of a rank: RankHandshake and this, then the ranks that it excludes.
struct Request {
  std::uint64_t key = 0;
  std::uint32_t num_excluded = 0;
  std::uint32_t checksum = 0;  // checksum of the bytes before it and those ranks
};

enum class Verdict : std::uint32_t { kContinue = 0, kRefused = 1, kDisagree = 2, kComeBack = 3 };

// Answer of the host: this, then `num_members` ranks, then the bootstrap address or an error.
struct Answer {
  std::uint32_t magic = 0x6d444e41;
  Verdict verdict = Verdict::kContinue;
  std::uint32_t num_members = 0;
  std::uint32_t text_bytes = 0;
  std::uint32_t rest_checksum = 0;
  std::uint32_t checksum = 0;
};

std::uint32_t checksum_of_request(Request request, std::string_view excluded) {
  return crc32c(excluded, net::checksum_of(request));
}

std::string bytes_of_ranks(const std::vector<int>& ranks) {
  std::string bytes;
  for (const int rank : ranks) bytes += net::view_of(static_cast<std::int32_t>(rank));
  return bytes;
}

std::vector<int> read_ranks(std::string_view bytes, std::size_t count) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < count; ++i) {
    ranks.push_back(net::read_as<std::int32_t>(bytes.substr(i * sizeof(std::int32_t))));
  }
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
        pending_(kIntroduction, 4 * shrink_agreement.listen_addresses_.size() + 256) {
    challenge_.rank = static_cast<std::uint32_t>(options_.rank);
    challenge_.listener =
        shrink_agreement.listen_addresses_[static_cast<std::size_t>(options_.rank)].listener;
  }

  Agreement run(const net::Deadline& deadline) {
    while (!missing().empty()) {
      shrink_agreement_.check_expelled();
      if (deadline.passed()) {
        if (shrink_agreement_.peers_.may_leave_behind()) break;
        fail(Verdict::kRefused,
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
    for (net::PendingConnection& connection : pending_.take_complete(wanted)) welcome(connection);
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
    constexpr std::size_t kHead = sizeof(net::RankHandshake) + sizeof(Request);
    if (received.size() < sizeof(net::RankHandshake)) return sizeof(net::RankHandshake);
    if (!is_genuine(net::read_as<net::RankHandshake>(received))) return 0;
    if (received.size() < kHead) return kHead;
    const auto request =
        net::read_as<Request>(std::string_view(received).substr(sizeof(net::RankHandshake)));
    if (request.num_excluded > shrink_agreement_.listen_addresses_.size()) return 0;
    return kHead + request.num_excluded * sizeof(std::int32_t);
  }

  void welcome(net::PendingConnection& connection) {
    const auto rank_handshake = net::read_as<net::RankHandshake>(connection.received);
    const std::string_view rest =
        std::string_view(connection.received).substr(sizeof rank_handshake);
    const auto request = net::read_as<Request>(rest);
    const std::string_view ranks = rest.substr(sizeof request);
    // A damaged request is sent again.
    if (request.checksum != checksum_of_request(request, ranks)) return;
    const auto excluded = read_ranks(ranks, request.num_excluded);
    const int rank = static_cast<int>(rank_handshake.rank);
    // A communicator split from the same one; this rank serves it when it calls shrink on it.
    if (request.key != options_.key) return answer(connection.socket, Verdict::kComeBack, {}, "");
    if (contains(options_.excluded, rank)) {
      return answer(
          connection.socket, Verdict::kRefused, {},
          fmt::format("{} was excluded by {}: it must not call shrink", describe({rank}), self()));
    }
    if (shrink_agreement_.peers_.gone(rank)) {
      return answer(connection.socket, Verdict::kRefused, {},
                    fmt::format("{} cannot shrink with the others: {} counts it as dead",
                                describe({rank}), self()));
    }
    clients_[rank] = std::move(connection.socket);
    if (excluded == options_.excluded) return;
    fail(Verdict::kDisagree,
         fmt::format(
             "the ranks disagree on the ranks to exclude: {} excludes {}, {} excludes {} (ranks "
             "of the job)",
             self(), list(options_.excluded), describe({rank}), list(excluded)));
  }

  void answer(const net::FileDescriptor& socket, Verdict verdict, const std::vector<int>& members,
              const std::string& text) const {
    Answer head;
    head.verdict = verdict;
    head.num_members = static_cast<std::uint32_t>(members.size());
    head.text_bytes = static_cast<std::uint32_t>(text.size());
    const std::string rest = bytes_of_ranks(members) + text;
    head.rest_checksum = crc32c(rest);
    const std::string bytes = std::string(net::view_of(net::sealed(head))) + rest;
    // A rank that does not receive it has exited, which the new communicator detects.
    net::send_all(socket, std::as_bytes(std::span(bytes)), net::Deadline(kSendLimit));
  }

  [[noreturn]] void fail(Verdict verdict, const std::string& message) const {
    for (const auto& [rank, socket] : clients_) answer(socket, verdict, {}, message);
    if (verdict == Verdict::kDisagree) throw ConfigError(message);
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
      answer(socket, Verdict::kContinue, agreement.members, agreement.address.text);
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
  net::PendingConnections pending_;
  net::RankChallenge challenge_;
  std::map<int, net::FileDescriptor> clients_;
};

// ---- the others ----

class ShrinkAgreement::Client {
 public:
  Client(ShrinkAgreement& shrink_agreement, int host)
      : shrink_agreement_(shrink_agreement), host_(host) {}

  // Returns nothing if a new host must be found.
  std::optional<Agreement> run(const net::Deadline& deadline) {
    std::string address;
    const net::FileDescriptor socket = reach(deadline, address);
    if (!socket) return {};
    Answer head;
    if (!receive(socket, std::as_writable_bytes(std::span(&head, 1)), deadline)) return {};
    if (head.magic == Answer().magic && !net::is_whole(head)) raise_damage(address);
    if (head.magic != Answer().magic || head.num_members > kMaxRanks || head.text_bytes > 65536)
      return {};
    std::string ranks(head.num_members * sizeof(std::int32_t), '\0');
    std::string text(head.text_bytes, '\0');
    if (!receive(socket, std::as_writable_bytes(std::span(ranks)), deadline) ||
        !receive(socket, std::as_writable_bytes(std::span(text)), deadline)) {
      return {};
    }
    if (crc32c(text, crc32c(ranks)) != head.rest_checksum) raise_damage(address);
    if (head.verdict == Verdict::kComeBack) return {};
    if (head.verdict == Verdict::kDisagree) throw ConfigError(text);
    if (head.verdict == Verdict::kRefused) throw CommError(text);
    Agreement agreement;
    agreement.members = read_ranks(ranks, head.num_members);
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
    Request request;
    request.key = shrink_agreement_.options_.key;
    request.num_excluded = static_cast<std::uint32_t>(shrink_agreement_.options_.excluded.size());
    const std::string excluded = bytes_of_ranks(shrink_agreement_.options_.excluded);
    request.checksum = checksum_of_request(request, excluded);
    const std::string bytes = std::string(net::view_of(net::sealed(rank_handshake))) +
                              std::string(net::view_of(request)) + excluded;
    if (net::send_all(found.socket, std::as_bytes(std::span(bytes)), net::Deadline(kSendLimit)) !=
        net::IoStatus::kDone) {
      return {};
    }
    return std::move(found.socket);
  }

  // False if the host has exited or is known to be lost.
  bool receive(const net::FileDescriptor& socket, std::span<std::byte> bytes,
               const net::Deadline& deadline) {
    while (!shrink_agreement_.peers_.gone(host_)) {
      shrink_agreement_.check_expelled();
      if (net::wait_readable(socket.get(), net::Deadline(kPollTimeout))) break;
      if (deadline.elapsed_seconds() > deadline.limit_seconds() + 1e-3 * double(kGrace.count()))
        return false;
    }
    return net::receive_all(socket, bytes, net::Deadline(kSendLimit)) == net::IoStatus::kDone;
  }

  ShrinkAgreement& shrink_agreement_;
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
