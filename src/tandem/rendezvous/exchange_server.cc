// The bootstrap on rank 0.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "tandem/core/error.h"
#include "tandem/core/text_layout.h"
#include "tandem/rendezvous/exchange_roles.h"
#include "tandem/rendezvous/exchange_wire.h"
#include "tandem/rendezvous/lobby.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;
using wire::Hello;
using wire::Reply;

// Timeout of the handshake.
constexpr milliseconds kIntroduction{10000};
// A process that is refused repeatedly does not fill the ranks' logs.
constexpr std::size_t kMaxNotices = 8;

struct Arrival {
  FileDescriptor socket;
  std::string card;
  std::string address;
  Nonce greeting{};
  Nonce hello{};
  std::string said;  // since the exchange
  bool ready = false;
};

std::size_t introduction_bytes(const std::string& received) {
  if (received.size() < sizeof(Hello)) {
    const auto magic = wire::view_of(wire::kMagic);
    const std::size_t known = std::min(received.size(), magic.size());
    return received.compare(0, known, magic, 0, known) == 0 ? sizeof(Hello) : 0;
  }
  const auto hello = wire::read_as<Hello>(received);
  if (hello.magic != wire::kMagic) return 0;
  if (wire::is_damaged(hello)) return sizeof hello;
  if (hello.card_bytes > wire::kMaxCardBytes) return 0;
  return sizeof hello + (hello.version == wire::kVersion ? hello.card_bytes : 0);
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

  void answer(const Arrival& to, wire::Status status, const std::string& text) const {
    const Deadline patience(kGrace);
    Reply reply;
    reply.status = status;
    reply.bytes = text.size();
    reply.text_checksum = crc32c(text);
    reply.proof = wire::reply_proof(token_, to.greeting, to.hello, status, text);
    reply = wire::sealed(reply);
    if (send_all(to.socket, std::as_bytes(std::span(&reply, 1)), patience) == IoStatus::kDone) {
      send_all(to.socket, std::as_bytes(std::span(text)), patience);
    }
  }

  void answer_all(wire::Status status, const std::string& text) const {
    for (std::size_t rank = 1; rank < size(); ++rank) {
      if (arrived_[rank]) answer(*arrived_[rank], status, text);
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
  [[noreturn]] void fail(wire::Status status, const std::string& message) const {
    answer_all(status, message);
    if (status == wire::kConfigError) throw ConfigError(message);
    throw CommError(message);
  }

 private:
  std::vector<std::optional<Arrival>> arrived_;
  std::string token_;
  std::vector<std::string> notices_;
};

class Server {
 public:
  Server(const Identity& identity, const std::string& card, const ExchangeOptions& options,
         FileDescriptor listener, std::uint64_t job, const LookAround& look_around, Ranks& ranks)
      : listener_(std::move(listener)),
        port_(local_port(listener_)),
        job_(job),
        deadline_(options.timeout),
        notices_(options),
        log_(options.log),
        check_(options.check),
        look_around_(look_around),
        ranks_(ranks),
        lobby_(kIntroduction, static_cast<std::size_t>(identity.world_size) + 256) {
    ranks_[0].emplace();
    ranks_[0]->card = card;
  }

  void run() {
    while (num_arrived_ < ranks_.size()) {
      if (deadline_.passed()) give_up_waiting();
      check();
      notices_.maybe(deadline_, [&] {
        return fmt::format("rank 0 waits at port {} for {} since {:.0f} s", port_, missing(),
                           deadline_.elapsed_seconds());
      });
      poll_once();
    }
  }

  // The job has failed because of `text`: ranks that connect later are notified, until all are or
  // until `limit`.
  void tell_late_ranks(wire::Status status, const std::string& text, milliseconds limit) {
    if (limit.count() == 0 || num_arrived_ == ranks_.size()) return;
    if (log_) log_(fmt::format("{}; {}", text, stays(limit)));
    stay_to_tell(status, text, limit);
  }

  // For a rank 0 that has failed earlier; its process has logged the reason.
  void tell_of_failure(const std::string& reason, milliseconds limit) {
    if (log_) log_(stays(limit));
    stay_to_tell(wire::kCommError, failure_of(0, host_name(), reason), limit);
  }

 private:
  std::string stays(milliseconds limit) const {
    return fmt::format("rank 0 stays {:.0f} s to tell {}",
                       std::chrono::duration<double>(limit).count(), missing());
  }

  static std::string failure_of(std::uint32_t rank, const std::string& where,
                                const std::string& reason) {
    std::string text = fmt::format("rank {} ({}) failed before the ranks had met: {}", rank, where,
                                   printable(reason, /*lines=*/true));
    if (text.size() > wire::kMaxTextBytes) text.resize(wire::kMaxTextBytes);
    return text;
  }

  void stay_to_tell(wire::Status status, const std::string& text, milliseconds limit) {
    const Deadline stay(limit);
    while (!stay.passed() && num_arrived_ < ranks_.size()) {
      std::vector<pollfd> waits{lobby_.door(listener_)};
      lobby_.add_to(waits);
      ::poll(waits.data(), waits.size(), stay.remaining_ms(lobby_.nap(milliseconds(500))));
      lobby_.accept_from(listener_, [&] { return greeting(); });
      for (Guest& guest : lobby_.take_complete(introduction_bytes)) {
        const auto hello = wire::read_as<Hello>(guest.received);
        Arrival arrival = arrival_of(std::move(guest));
        if (is_damaged(hello, arrival) || why_refused(hello, arrival) ||
            hello.rank >= ranks_.size())
          continue;
        ranks_.answer(arrival, status, text);
        if (!ranks_[hello.rank]) ++num_arrived_;
        ranks_[hello.rank] = std::move(arrival);  // open until it has read
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
    std::vector<pollfd> waits{lobby_.door(listener_)};
    std::vector<std::size_t> present;
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank]) continue;
      waits.push_back({ranks_[rank]->socket.get(), POLLIN, 0});
      present.push_back(rank);
    }
    lobby_.add_to(waits);
    const int patience = deadline_.remaining_ms(lobby_.nap(milliseconds(500)));
    if (::poll(waits.data(), waits.size(), patience) < 0) return;
    for (std::size_t i = 0; i < present.size(); ++i) {
      if (waits[1 + i].revents != 0) rank_went_away(present[i]);
    }
    lobby_.accept_from(listener_, [&] { return greeting(); });
    for (Guest& guest : lobby_.take_complete(introduction_bytes)) accept_rank(std::move(guest));
  }

  std::string greeting() const {
    wire::Greeting greeting;
    greeting.has_token = ranks_.token().empty() ? 0 : 1;
    greeting.job = job_;
    greeting.nonce = make_nonce();
    return std::string(wire::view_of(wire::sealed(greeting)));
  }

  // True if the handshake arrived damaged; then the rank is asked to send it again.
  bool is_damaged(const Hello& hello, const Arrival& arrival) const {
    const bool of_this_version = hello.version == wire::kVersion;
    if (!wire::is_damaged(hello) &&
        (!of_this_version || crc32c(arrival.card) == hello.card_checksum))
      return false;
    ranks_.answer(arrival, wire::kDamaged,
                  fmt::format("the link from the rank at {} to rank 0 on host {} is damaged: its "
                              "first frame arrived with a wrong checksum; check the network cards, "
                              "cables and switches between these two hosts",
                              arrival.address, host_name()));
    return true;
  }

  static Arrival arrival_of(Guest guest) {
    Arrival arrival;
    arrival.address = peer_address(guest.socket);
    arrival.socket = std::move(guest.socket);
    arrival.card = guest.received.substr(sizeof(Hello));
    arrival.greeting = wire::read_as<wire::Greeting>(guest.greeting).nonce;
    arrival.hello = wire::read_as<Hello>(guest.received).nonce;
    return arrival;
  }

  void accept_rank(Guest guest) {
    const auto hello = wire::read_as<Hello>(guest.received);
    Arrival arrival = arrival_of(std::move(guest));
    if (is_damaged(hello, arrival)) return;
    if (const auto why = why_refused(hello, arrival)) return refuse(hello, arrival, *why);
    if (hello.world_size != ranks_.size()) {
      reject(arrival, fmt::format("the ranks disagree on the world size: rank 0 has {}, rank {} "
                                  "({}) has {}",
                                  ranks_.size(), hello.rank, arrival.address, hello.world_size));
    }
    if (hello.rank >= ranks_.size() || ranks_[hello.rank]) {
      reject(arrival,
             fmt::format("two processes say that they are rank {} (one of them at {}); check the "
                         "launcher's settings, or give jobs that run at the same time different "
                         "values of MASTER_PORT",
                         hello.rank, arrival.address));
    }
    const std::string failure =
        hello.gave_up != 0 ? failure_of(hello.rank, arrival.address, arrival.card) : "";
    watch_host(arrival.socket, kStartSilence);
    ranks_.add(hello.rank, std::move(arrival));
    ++num_arrived_;
    if (!failure.empty()) ranks_.fail(wire::kCommError, failure);
  }

  // The reason to refuse a process: a rank with a wrong setting, or another program. Nothing if it
  // knows the token.
  std::optional<std::string> why_refused(const Hello& hello, const Arrival& arrival) const {
    if (hello.version != wire::kVersion) {
      return fmt::format(
          "it speaks version {} of the rendezvous, rank 0 version {}; run the same tandem "
          "everywhere",
          hello.version, wire::kVersion);
    }
    const bool here = !ranks_.token().empty();
    const bool there = hello.has_token != 0;
    if (here == there && same_proof(hello.proof, wire::hello_proof(ranks_.token(), arrival.greeting,
                                                                   hello, arrival.card))) {
      return std::nullopt;
    }
    return fmt::format("{}; give all ranks the same TANDEM_JOB_TOKEN",
                       here && there ? "its TANDEM_JOB_TOKEN is not rank 0's"
                       : here        ? "it has no TANDEM_JOB_TOKEN, rank 0 has one"
                                     : "it has a TANDEM_JOB_TOKEN, rank 0 has none");
  }

  // The process is notified, the ranks log it, and the right rank may still connect.
  void refuse(const Hello& hello, const Arrival& arrival, const std::string& why) {
    const std::string text =
        fmt::format("rank 0 on host {} refused a process at {} that says it is rank {}: {}",
                    host_name(), arrival.address, hello.rank, why);
    ranks_.answer(arrival, wire::kConfigError, text);
    if (!ranks_.may_notify()) return;
    if (log_) log_(text);
    ranks_.notify(text);
    if (hello.rank < ranks_.size() && !ranks_[hello.rank]) last_refusal_ = text;
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
                            "not come; check that all ranks were started and can reach this "
                            "address{}",
                            deadline_.elapsed_seconds(), port_, host_name(), missing(),
                            ranks_.size(), last_refusal_.empty() ? "" : "; " + last_refusal_));
  }

  std::string missing() const {
    return ranks_.list([](const std::optional<Arrival>& one) { return !one.has_value(); });
  }

  FileDescriptor listener_;
  int port_;
  std::uint64_t job_;
  Deadline deadline_;
  Notices notices_;
  const std::function<void(const std::string&)>& log_;
  const std::function<void()>& check_;
  const LookAround& look_around_;
  Ranks& ranks_;
  Lobby lobby_;
  std::size_t num_arrived_ = 1;
  std::string last_refusal_;  // from a process that claimed the number of a missing rank
};

class ServerVigil final : public Vigil {
 public:
  ServerVigil(Ranks ranks, LookAround look_around)
      : ranks_(std::move(ranks)), look_around_(std::move(look_around)) {}

  void watch_hosts(milliseconds silence) override {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      watch_host(ranks_[rank]->socket, silence);
    }
  }

  void add_to(std::vector<pollfd>& waits) const override {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      waits.push_back({const_cast<Ranks&>(ranks_)[rank]->socket.get(), POLLIN, 0});
    }
  }

  void check() override {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) listen_to(rank);
    try {
      if (look_around_) look_around_();
    } catch (const CommError& error) {
      ranks_.fail(wire::kCommError, error.what());
    }
  }

  void finish(const Deadline& deadline) override {
    while (num_ready_ + 1 < ranks_.size()) {
      if (deadline.passed()) {
        ranks_.fail(wire::kCommError, fmt::format("rank 0 waited {:.1f} s until all ranks had "
                                                  "connected to each other; not ready: {}",
                                                  deadline.elapsed_seconds(), unready()));
      }
      std::vector<pollfd> waits;
      add_to(waits);
      ::poll(waits.data(), waits.size(), deadline.remaining_ms(milliseconds(500)));
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
    char bytes[1024];
    while (one.said.size() <= sizeof(wire::WordHead) + wire::kMaxTextBytes) {
      const ssize_t count = ::recv(one.socket.get(), bytes, sizeof bytes, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return take_words(rank);
      if (count <= 0) {
        const int error = count < 0 ? errno : 0;
        take_words(rank);
        ranks_.fail(wire::kCommError, fmt::format("rank {} ({}) died while the ranks were "
                                                  "connecting to each other{}; look at its output",
                                                  rank, one.address, silence_if(error)));
      }
      one.said.append(bytes, static_cast<std::size_t>(count));
    }
    take_words(rank);  // more than the protocol allows: unread bytes would wake the poll forever
  }

  void take_words(std::size_t rank) {
    std::string& said = ranks_[rank]->said;
    while (said.size() >= sizeof(wire::WordHead)) {
      const auto head = wire::read_as<wire::WordHead>(said);
      if (head.magic != wire::kMagic || !wire::is_whole(head) || head.bytes > wire::kMaxTextBytes)
        fail_of_damage(rank);
      if (said.size() < sizeof head + head.bytes) return;
      const std::string text = said.substr(sizeof head, head.bytes);
      said.erase(0, sizeof head + head.bytes);
      if (crc32c(text) != head.text_checksum) fail_of_damage(rank);
      if (head.word != wire::kReady) ranks_.fail(wire::kCommError, text);
      num_ready_ += ranks_[rank]->ready ? 0 : 1;
      ranks_[rank]->ready = true;
    }
  }

  [[noreturn]] void fail_of_damage(std::size_t rank) {
    ranks_.fail(wire::kCommError,
                fmt::format("the link from rank {} ({}) to rank 0 on host {} is damaged: a frame "
                            "arrived with a wrong checksum; check the network cards, cables and "
                            "switches between these two hosts",
                            rank, ranks_[rank]->address, host_name()));
  }

  Ranks ranks_;
  LookAround look_around_;
  std::size_t num_ready_ = 0;
};

void append_text(std::string& to, const std::string& text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  to += wire::view_of(length);
  to += text;
}

}  // namespace

void tell_ranks(const Identity& identity, const std::string& reason, const ExchangeOptions& options,
                FileDescriptor listener) {
  Ranks ranks(static_cast<std::size_t>(identity.world_size), identity.job_token);
  Server(identity, "", options, std::move(listener), 0, {}, ranks)
      .tell_of_failure(reason, options.late_ranks);
}

Meeting receive_ranks(const Identity& identity, const std::string& card,
                      const ExchangeOptions& options, FileDescriptor listener, std::uint64_t job,
                      const LookAround& look_around) {
  Ranks ranks(static_cast<std::size_t>(identity.world_size), identity.job_token);
  Server server(identity, card, options, std::move(listener), job, look_around, ranks);
  try {
    server.run();
  } catch (const ConfigError& error) {
    server.tell_late_ranks(wire::kConfigError, error.what(), options.late_ranks);
    throw;
  } catch (const CommError& error) {
    server.tell_late_ranks(wire::kCommError, error.what(), options.late_ranks);
    throw;
  }
  Meeting meeting;
  std::string table;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    meeting.met.push_back({ranks[rank]->card, ranks[rank]->address});
    append_text(table, meeting.met.back().card);
    append_text(table, meeting.met.back().address);
  }
  ranks.answer_all(wire::kOk, table);
  meeting.vigil = std::make_unique<ServerVigil>(std::move(ranks), look_around);
  return meeting;
}

}  // namespace tandem::rendezvous
