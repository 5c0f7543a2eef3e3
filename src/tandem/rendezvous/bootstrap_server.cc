// The bootstrap on rank 0.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "tandem/core/error.h"
#include "tandem/core/text_layout.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/pending_connections.h"
#include "tandem/rendezvous/bootstrap_roles.h"
#include "tandem/rendezvous/bootstrap_wire.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;
using wire::HandshakeMessage;

// Timeout of the handshake.
constexpr milliseconds kIntroduction{10000};
// A process that is refused repeatedly does not fill the ranks' logs.
constexpr std::size_t kMaxNotices = 8;

struct Arrival {
  net::FileDescriptor socket;
  std::string peer_info;
  std::string address;
  net::Nonce challenge{};
  net::Nonce handshake{};                     // nonce of the rank
  net::FrameReader received{wire::kToRank0};  // since the all-gather
  bool ready = false;
};

std::size_t introduction_bytes(const std::string& received) {
  try {
    return net::frame_bytes(wire::kToRank0, received);
  } catch (const net::DamagedFrame&) {
    return received.size();  // the rank is asked to send it again
  } catch (const CommError&) {
    return 0;
  }
}

// The first frame of a rank; nothing if it is damaged.
std::optional<net::Frame> introduction_of(const net::PendingConnection& connection) {
  try {
    auto frame = net::decode_frame(wire::kToRank0, connection.received);
    return frame && frame->kind == wire::kHandshake ? std::move(frame) : std::nullopt;
  } catch (const CommError&) {
    return std::nullopt;
  }
}

// The connected ranks, and the messages to them.
class Ranks {
 public:
  Ranks(std::size_t world_size, std::string token)
      : arrived_(world_size), token_(std::move(token)) {}

  std::size_t size() const { return arrived_.size(); }
  std::optional<Arrival>& operator[](std::size_t rank) { return arrived_[rank]; }
  const std::string& token() const { return token_; }

  template <class Condition>
  std::string list(Condition condition) const {
    std::string text;
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      if (!condition(arrived_[rank])) continue;
      if (++count <= 16) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
    }
    return fmt::format("rank{} {}{}", count == 1 ? "" : "s", text, count > 16 ? ", …" : "");
  }

  void answer(const Arrival& to, wire::Kind kind, const std::string& text) const {
    const net::ProofCode proof = wire::reply_proof(token_, to.challenge, to.handshake, kind, text);
    const std::string bytes =
        net::encode_frame(wire::from_rank_0(size()), kind, {wire::view_of(proof), text});
    net::send_all(to.socket, std::as_bytes(std::span(bytes)), net::Deadline(kGrace));
  }

  void answer_all(wire::Kind kind, const std::string& text) const {
    for (std::size_t rank = 1; rank < size(); ++rank) {
      if (arrived_[rank]) answer(*arrived_[rank], kind, text);
    }
  }

  // For the logs of all ranks, including those that connect later.
  void notify(const std::string& text) {
    if (notices_.size() >= kMaxNotices) return;
    notices_.push_back(text);
    answer_all(wire::kNotice, text);
  }
  bool may_notify() const { return notices_.size() < kMaxNotices; }

  void add(std::size_t rank, Arrival arrival) {
    arrived_[rank] = std::move(arrival);
    for (const std::string& text : notices_) answer(*arrived_[rank], wire::kNotice, text);
  }

  // Notifies all connected ranks, then throws.
  [[noreturn]] void fail(wire::Kind kind, const std::string& message) const {
    answer_all(kind, message);
    if (kind == wire::kConfigError) throw ConfigError(message);
    throw CommError(message);
  }

 private:
  std::vector<std::optional<Arrival>> arrived_;
  std::string token_;
  std::vector<std::string> notices_;
};

class Server {
 public:
  Server(const Identity& identity, const std::string& peer_info, const BootstrapOptions& options,
         net::FileDescriptor listener, std::uint64_t job, const LookAround& look_around,
         Ranks& ranks)
      : listener_(std::move(listener)),
        port_(net::local_port(listener_)),
        job_(job),
        deadline_(options.timeout),
        notices_(options),
        log_(options.log),
        check_(options.check),
        look_around_(look_around),
        ranks_(ranks),
        pending_(kIntroduction, static_cast<std::size_t>(identity.world_size) + 256) {
    ranks_[0].emplace();
    ranks_[0]->peer_info = peer_info;
  }

  void run() {
    while (num_arrived_ < ranks_.size()) {
      if (deadline_.passed()) give_up_waiting();
      check();
      notices_.maybe(deadline_, [&] {
        return fmt::format("rank 0 has waited {:.0f} s at port {} for {}",
                           deadline_.elapsed_seconds(), port_, missing());
      });
      poll_once();
    }
  }

  // The job has failed because of `text`: ranks that connect within `limit` are notified.
  void notify_late_ranks(wire::Kind kind, const std::string& text, milliseconds limit) {
    if (limit.count() == 0 || num_arrived_ == ranks_.size()) return;
    if (log_) log_(fmt::format("{}; {}", text, stays(limit)));
    stay_to_notify(kind, text, limit);
  }

  // For a rank 0 that has failed earlier; its process has logged the reason.
  void report_failure(const std::string& reason, milliseconds limit) {
    if (log_) log_(stays(limit));
    stay_to_notify(wire::kCommError, failure_of(0, net::host_name(), reason), limit);
  }

 private:
  std::string stays(milliseconds limit) const {
    return fmt::format("rank 0 stays {:.0f} s to notify {}",
                       std::chrono::duration<double>(limit).count(), missing());
  }

  static std::string failure_of(std::uint32_t rank, const std::string& where,
                                const std::string& reason) {
    std::string text = fmt::format("rank {} ({}) failed before all ranks were connected: {}", rank,
                                   where, printable(reason, /*lines=*/true));
    if (text.size() > wire::kMaxTextBytes) text.resize(wire::kMaxTextBytes);
    return text;
  }

  void stay_to_notify(wire::Kind kind, const std::string& text, milliseconds limit) {
    const net::Deadline stay(limit);
    while (!stay.passed() && num_arrived_ < ranks_.size()) {
      net::EventLoop loop;
      pending_.add_listener(listener_, loop);
      pending_.add_to(loop);
      loop.until(stay);
      loop.run_once(milliseconds(500));
      pending_.accept_from(listener_, [&] { return challenge(); });
      while (auto connection = pending_.take_complete(introduction_bytes)) {
        Arrival arrival;
        const auto handshake = introduction(std::move(*connection), arrival);
        if (!handshake || why_refused(*handshake, arrival) || handshake->rank >= ranks_.size())
          continue;
        ranks_.answer(arrival, kind, text);
        if (!ranks_[handshake->rank]) ++num_arrived_;
        ranks_[handshake->rank] = std::move(arrival);  // open until it has read
      }
    }
  }

  void check() {
    try {
      if (check_) check_();
      if (look_around_) look_around_();
    } catch (const CommError& error) {
      ranks_.fail(wire::kCommError, error.what());
    }
  }

  void poll_once() {
    net::EventLoop loop;
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      if (ranks_[rank]) loop.read(ranks_[rank]->socket, [this, rank] { rank_went_away(rank); });
    }
    pending_.add_listener(listener_, loop);
    pending_.add_to(loop);
    loop.until(deadline_);
    loop.run_once(milliseconds(500));
    pending_.accept_from(listener_, [&] { return challenge(); });
    while (auto connection = pending_.take_complete(introduction_bytes))
      accept_rank(std::move(*connection));
  }

  std::string challenge() const {
    wire::Challenge challenge;
    challenge.has_token = ranks_.token().empty() ? 0 : 1;
    challenge.job = job_;
    challenge.nonce = net::make_nonce();
    return std::string(wire::view_of(wire::sealed(challenge)));
  }

  // The handshake of a rank, and what is known about it. Returns nothing if the handshake arrived
  // damaged; then the rank is asked to send it again.
  std::optional<HandshakeMessage> introduction(net::PendingConnection connection,
                                               Arrival& arrival) const {
    const std::optional<net::Frame> frame = introduction_of(connection);
    arrival.address = net::peer_address(connection.socket);
    arrival.socket = std::move(connection.socket);
    arrival.challenge = wire::read_as<wire::Challenge>(connection.challenge).nonce;
    if (!frame) {
      ranks_.answer(arrival, wire::kDamaged,
                    fmt::format("the link from the rank at {} to rank 0 on host {} is damaged: its "
                                "first frame arrived with a wrong checksum; check the network "
                                "cards, cables and switches between these two hosts",
                                arrival.address, net::host_name()));
      return std::nullopt;
    }
    const HandshakeMessage handshake = wire::handshake_of(*frame);
    arrival.handshake = handshake.nonce;
    arrival.peer_info = frame->payload.substr(std::min(frame->payload.size(), sizeof handshake));
    return handshake;
  }

  void accept_rank(net::PendingConnection connection) {
    Arrival arrival;
    const auto introduced = introduction(std::move(connection), arrival);
    if (!introduced) return;
    const HandshakeMessage& handshake = *introduced;
    if (const auto why = why_refused(handshake, arrival)) return refuse(handshake, arrival, *why);
    if (handshake.world_size != ranks_.size()) {
      reject(arrival,
             fmt::format("the ranks disagree on the world size: rank 0 has {}, rank {} "
                         "({}) has {}",
                         ranks_.size(), handshake.rank, arrival.address, handshake.world_size));
    }
    if (handshake.rank >= ranks_.size() || ranks_[handshake.rank]) {
      reject(arrival,
             fmt::format("two processes claim to be rank {} (one of them at {}); check the "
                         "launcher's settings, or give jobs that run at the same time different "
                         "values of MASTER_PORT",
                         handshake.rank, arrival.address));
    }
    const std::string failure = handshake.gave_up != 0
                                    ? failure_of(handshake.rank, arrival.address, arrival.peer_info)
                                    : "";
    net::watch_host(arrival.socket, kStartSilence);
    ranks_.add(handshake.rank, std::move(arrival));
    ++num_arrived_;
    if (!failure.empty()) ranks_.fail(wire::kCommError, failure);
  }

  // The reason to refuse a process; nothing if it knows the token.
  std::optional<std::string> why_refused(const HandshakeMessage& handshake,
                                         const Arrival& arrival) const {
    if (handshake.version != wire::kVersion) {
      return fmt::format(
          "it has version {} of the rendezvous protocol, rank 0 has version {}; install the same "
          "tandem on all hosts",
          handshake.version, wire::kVersion);
    }
    const bool here = !ranks_.token().empty();
    const bool there = handshake.has_token != 0;
    if (here == there &&
        net::same_proof(handshake.proof, wire::handshake_proof(ranks_.token(), arrival.challenge,
                                                               handshake, arrival.peer_info))) {
      return std::nullopt;
    }
    return fmt::format("{}; give all ranks the same TANDEM_JOB_TOKEN",
                       here && there ? "its TANDEM_JOB_TOKEN is not rank 0's"
                       : here        ? "it has no TANDEM_JOB_TOKEN, rank 0 has one"
                                     : "it has a TANDEM_JOB_TOKEN, rank 0 has none");
  }

  // The process is notified, the ranks log it, and the right rank may still connect.
  void refuse(const HandshakeMessage& handshake, const Arrival& arrival, const std::string& why) {
    const std::string text =
        fmt::format("rank 0 on host {} refused a process at {} that claims to be rank {}: {}",
                    net::host_name(), arrival.address, handshake.rank, why);
    ranks_.answer(arrival, wire::kConfigError, text);
    if (!ranks_.may_notify()) return;
    if (log_) log_(text);
    ranks_.notify(text);
    if (handshake.rank < ranks_.size() && !ranks_[handshake.rank]) last_refusal_ = text;
  }

  [[noreturn]] void reject(const Arrival& arrival, const std::string& message) {
    ranks_.answer(arrival, wire::kConfigError, message);
    ::shutdown(arrival.socket.get(), SHUT_WR);
    ranks_.fail(wire::kConfigError, message);
  }

  void rank_went_away(std::size_t rank) {
    const std::string address = ranks_[rank]->address;
    ranks_[rank].reset();
    ranks_.fail(wire::kCommError,
                fmt::format("rank {} ({}) ended while the job was starting, {:.1f} s after rank 0; "
                            "look at its output",
                            rank, address, deadline_.elapsed_seconds()));
  }

  [[noreturn]] void give_up_waiting() {
    ranks_.fail(wire::kCommError,
                fmt::format("rank 0 waited {:.1f} s at port {} of host {} for {} of {}, which did "
                            "not connect; check that all ranks were started and can reach this "
                            "address{}",
                            deadline_.elapsed_seconds(), port_, net::host_name(), missing(),
                            ranks_.size(), last_refusal_.empty() ? "" : "; " + last_refusal_));
  }

  std::string missing() const {
    return ranks_.list([](const std::optional<Arrival>& one) { return !one.has_value(); });
  }

  net::FileDescriptor listener_;
  int port_;
  std::uint64_t job_;
  net::Deadline deadline_;
  Notices notices_;
  const std::function<void(const std::string&)>& log_;
  const std::function<void()>& check_;
  const LookAround& look_around_;
  Ranks& ranks_;
  net::PendingConnections pending_;
  std::size_t num_arrived_ = 1;
  std::string last_refusal_;  // from a process that claimed the number of a missing rank
};

class ServerMonitor final : public BootstrapMonitor {
 public:
  ServerMonitor(Ranks ranks, LookAround look_around)
      : ranks_(std::move(ranks)), look_around_(std::move(look_around)) {}

  void watch_hosts(milliseconds silence) override {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank)
      net::watch_host(ranks_[rank]->socket, silence);
  }

  void add_to(net::EventLoop& loop) const override {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank)
      loop.read(const_cast<Ranks&>(ranks_)[rank]->socket);
  }

  void check() override {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) listen_to(rank);
    try {
      if (look_around_) look_around_();
    } catch (const CommError& error) {
      ranks_.fail(wire::kCommError, error.what());
    }
  }

  void finish(const net::Deadline& deadline) override {
    while (num_ready_ + 1 < ranks_.size()) {
      if (deadline.passed()) {
        ranks_.fail(wire::kCommError, fmt::format("rank 0 waited {:.1f} s until all ranks had "
                                                  "connected to each other; not ready: {}",
                                                  deadline.elapsed_seconds(), unready()));
      }
      net::EventLoop loop;
      add_to(loop);
      loop.until(deadline);
      loop.run_once(milliseconds(500));
      check();
    }
    ranks_.answer_all(wire::kOk, "");
  }

  void give_up(std::string_view reason) noexcept override {
    try {
      ranks_.answer_all(wire::kCommError, std::string(reason.substr(0, wire::kMaxTextBytes)));
    } catch (...) {  // no memory: the end of the connections is the message
    }
  }

 private:
  std::string unready() const {
    return ranks_.list([first = true](const std::optional<Arrival>& one) mutable {
      const bool is_rank_0 = std::exchange(first, false);
      return !is_rank_0 && !one->ready;
    });
  }

  void listen_to(std::size_t rank) {
    Arrival& one = *ranks_[rank];
    const std::optional<int> end = one.received.read_from(one.socket);
    take_words(rank);
    if (!end) return;
    ranks_.fail(wire::kCommError, fmt::format("rank {} ({}) died while the ranks were "
                                              "connecting to each other{}; look at its output",
                                              rank, one.address, silence_if(*end)));
  }

  void take_words(std::size_t rank) {
    while (const std::optional<net::Frame> word = next_word(rank)) {
      if (word->kind == wire::kGaveUp) ranks_.fail(wire::kCommError, word->payload);
      if (word->kind != wire::kReady) fail_of_damage(rank);
      num_ready_ += ranks_[rank]->ready ? 0 : 1;
      ranks_[rank]->ready = true;
    }
  }

  std::optional<net::Frame> next_word(std::size_t rank) {
    try {
      return ranks_[rank]->received.take();
    } catch (const CommError&) {
      fail_of_damage(rank);
    }
  }

  [[noreturn]] void fail_of_damage(std::size_t rank) {
    ranks_.fail(wire::kCommError,
                fmt::format("the link from rank {} ({}) to rank 0 on host {} is damaged: a frame "
                            "arrived with a wrong checksum; check the network cards, cables and "
                            "switches between these two hosts",
                            rank, ranks_[rank]->address, net::host_name()));
  }

  Ranks ranks_;
  LookAround look_around_;
  std::size_t num_ready_ = 0;
};

}  // namespace

void notify_ranks(const Identity& identity, const std::string& reason,
                  const BootstrapOptions& options, net::FileDescriptor listener) {
  Ranks ranks(static_cast<std::size_t>(identity.world_size), identity.job_token);
  Server(identity, "", options, std::move(listener), 0, {}, ranks)
      .report_failure(reason, options.late_ranks);
}

BootstrapResult receive_ranks(const Identity& identity, const std::string& peer_info,
                              const BootstrapOptions& options, net::FileDescriptor listener,
                              std::uint64_t job, const LookAround& look_around) {
  Ranks ranks(static_cast<std::size_t>(identity.world_size), identity.job_token);
  Server server(identity, peer_info, options, std::move(listener), job, look_around, ranks);
  try {
    server.run();
  } catch (const ConfigError& error) {
    server.notify_late_ranks(wire::kConfigError, error.what(), options.late_ranks);
    throw;
  } catch (const CommError& error) {
    server.notify_late_ranks(wire::kCommError, error.what(), options.late_ranks);
    throw;
  }
  BootstrapResult result;
  std::string table;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    result.met.push_back({ranks[rank]->peer_info, ranks[rank]->address});
    net::append_text(table, result.met.back().peer_info);
    net::append_text(table, result.met.back().address);
  }
  ranks.answer_all(wire::kOk, table);
  result.bootstrap_monitor = std::make_unique<ServerMonitor>(std::move(ranks), look_around);
  return result;
}

}  // namespace tandem::rendezvous
