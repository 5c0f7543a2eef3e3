#include "tandem/rendezvous/exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/rendezvous/pmi.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;

// The wire: a client sends Hello and its card; rank 0 answers with Reply and either the table of
// all ranks (status kOk) or a text that says why the job cannot start.
constexpr std::uint32_t kMagic = 0x6d444e54;  // "TNDm"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaxCardBytes = 1u << 16;
constexpr std::uint64_t kMaxReplyBytes = 1u << 30;

enum Status : std::uint32_t { kOk = 0, kConfigError = 1, kCommError = 2 };

struct Hello {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t world_size = 0;
  std::uint32_t rank = 0;
  std::uint32_t card_bytes = 0;
};

struct Reply {
  std::uint32_t magic = kMagic;
  std::uint32_t status = kOk;
  std::uint64_t bytes = 0;
};

constexpr milliseconds kFirstNotice{5000};
constexpr milliseconds kNoticeEvery{30000};
// The others wait this much longer than rank 0, whose message knows which ranks are missing.
constexpr milliseconds kGrace{5000};
constexpr milliseconds kRetry{50};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void append_text(std::string& to, const std::string& text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  to.append(reinterpret_cast<const char*>(&length), sizeof length);
  to += text;
}

std::string take_text(std::string_view& from) {
  std::uint32_t length = 0;
  if (from.size() < sizeof length) raise<CommError>("rank 0 sent a broken table of ranks");
  std::memcpy(&length, from.data(), sizeof length);
  from.remove_prefix(sizeof length);
  if (from.size() < length) raise<CommError>("rank 0 sent a broken table of ranks");
  std::string text(from.substr(0, length));
  from.remove_prefix(length);
  return text;
}

// Calls `log` after 5 s of waiting and then every 30 s.
class Notices {
 public:
  explicit Notices(const ExchangeOptions& options) : log_(options.log) {}
  template <class Text>
  void maybe(const Deadline& deadline, Text text) {
    if (!log_ || deadline.elapsed_seconds() * 1000 < static_cast<double>(next_.count())) return;
    next_ += kNoticeEvery;
    log_(text());
  }

 private:
  const std::function<void(const std::string&)>& log_;
  milliseconds next_ = kFirstNotice;
};

// ---- rank 0 ----

class Server {
 public:
  Server(const Identity& identity, const std::string& card, const ExchangeOptions& options,
         FileDescriptor listener)
      : world_size_(static_cast<std::size_t>(identity.world_size)),
        listener_(std::move(listener)),
        port_(local_port(listener_)),
        deadline_(options.timeout),
        notices_(options),
        arrived_(world_size_) {
    arrived_[0] = Arrival{FileDescriptor(), card, "", 0};
    num_arrived_ = 1;
  }

  std::vector<Met> run() {
    while (num_arrived_ < world_size_) {
      if (deadline_.passed()) give_up_waiting();
      notices_.maybe(deadline_, [&] {
        return fmt::format("rank 0 waits at port {} for {} since {:.0f} s", port_, missing(),
                           deadline_.elapsed_seconds());
      });
      poll_once();
    }
    std::vector<Met> met;
    for (const auto& arrival : arrived_) met.push_back({arrival->card, arrival->address});
    std::string table;
    for (const Met& entry : met) {
      append_text(table, entry.card);
      append_text(table, entry.address);
    }
    answer_all(kOk, table);
    return met;
  }

 private:
  struct Arrival {
    FileDescriptor socket;
    std::string card;
    std::string address;
    int order = 0;
  };
  struct Pending {  // has connected, but its hello is not complete
    FileDescriptor socket;
    std::string received;
  };

  void poll_once() {
    std::vector<pollfd> waits{{listener_.get(), POLLIN, 0}};
    for (const Pending& pending : pending_) waits.push_back({pending.socket.get(), POLLIN, 0});
    std::vector<std::size_t> waiting_ranks;
    for (std::size_t rank = 1; rank < world_size_; ++rank) {
      if (!arrived_[rank]) continue;
      waits.push_back({arrived_[rank]->socket.get(), POLLIN, 0});
      waiting_ranks.push_back(rank);
    }
    if (::poll(waits.data(), waits.size(), deadline_.remaining_ms(milliseconds(500))) <= 0) return;
    const std::size_t num_pending = pending_.size();
    for (std::size_t i = 0; i < waiting_ranks.size(); ++i) {
      if (waits[1 + num_pending + i].revents != 0) rank_went_away(waiting_ranks[i]);
    }
    for (std::size_t i = 0; i < num_pending; ++i) {
      if (waits[1 + i].revents != 0) read_hello(pending_[i]);
    }
    std::erase_if(pending_, [](const Pending& pending) { return !pending.socket; });
    if (waits[0].revents != 0) {
      while (FileDescriptor socket = accept_tcp(listener_, 0)) {
        pending_.push_back(Pending{std::move(socket), ""});
      }
    }
  }

  // Strangers (port scanners, other programs) are dropped without a word; ranks are checked and
  // remembered.
  void read_hello(Pending& pending) {
    char bytes[4096];
    while (true) {
      const ssize_t count = ::recv(pending.socket.get(), bytes, sizeof bytes, 0);
      if (count < 0 && errno == EAGAIN) break;
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return pending.socket.reset();
      pending.received.append(bytes, static_cast<std::size_t>(count));
    }
    if (pending.received.size() < sizeof(Hello)) return;
    Hello hello;
    std::memcpy(&hello, pending.received.data(), sizeof hello);
    if (hello.magic != kMagic || hello.card_bytes > kMaxCardBytes) return pending.socket.reset();
    if (hello.version != kVersion) {
      fail(
          std::move(pending.socket), kConfigError,
          fmt::format(
              "rank {} speaks version {} of the rendezvous, rank 0 version {}: run the same tandem "
              "everywhere",
              hello.rank, hello.version, kVersion));
    }
    if (pending.received.size() < sizeof hello + hello.card_bytes) return;
    accept_rank(hello, std::move(pending));
  }

  void accept_rank(const Hello& hello, Pending pending) {
    const std::string address = peer_address(pending.socket);
    if (hello.world_size != world_size_) {
      fail(std::move(pending.socket), kConfigError,
           fmt::format("the ranks disagree on the world size: rank 0 has {}, rank {} ({}) has {}",
                       world_size_, hello.rank, address, hello.world_size));
    }
    if (hello.rank >= world_size_ || arrived_[hello.rank]) {
      fail(std::move(pending.socket), kConfigError,
           fmt::format(
               "two processes say that they are rank {} (one of them at {}); check the launcher's "
               "settings, or give jobs that run at the same time different values of MASTER_PORT",
               hello.rank, address));
    }
    arrived_[hello.rank] = Arrival{std::move(pending.socket), pending.received.substr(sizeof hello),
                                   address, static_cast<int>(num_arrived_)};
    ++num_arrived_;
  }

  void rank_went_away(std::size_t rank) {
    const std::string address = arrived_[rank]->address;
    arrived_[rank].reset();
    fail({}, kCommError,
         fmt::format("rank {} ({}) ended while the job was starting, {:.1f} s after rank 0; look "
                     "at its output",
                     rank, address, deadline_.elapsed_seconds()));
  }

  [[noreturn]] void give_up_waiting() {
    fail({}, kCommError,
         fmt::format("rank 0 waited {:.1f} s at port {} of host {} for {} of {}, which did not "
                     "come; check that "
                     "all ranks were started and can reach this address",
                     deadline_.elapsed_seconds(), port_, host_name(), missing(), world_size_));
  }

  std::string missing() const {
    std::string text;
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < world_size_; ++rank) {
      if (arrived_[rank]) continue;
      if (++count <= 16) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
    }
    return fmt::format("rank{} {}{}", count == 1 ? "" : "s", text, count > 16 ? ", …" : "");
  }

  // Tells everybody who is here, then throws.
  [[noreturn]] void fail(FileDescriptor offender, Status status, const std::string& message) {
    if (offender) answer(offender, status, message);
    answer_all(status, message);
    if (status == kConfigError) throw ConfigError(message);
    throw CommError(message);
  }

  void answer(const FileDescriptor& socket, Status status, const std::string& text) {
    const Deadline patience(kGrace);
    Reply reply;
    reply.status = status;
    reply.bytes = text.size();
    if (send_all(socket, bytes_of(reply), patience) == IoStatus::kDone) {
      send_all(socket, bytes_of(text), patience);
    }
    ::shutdown(socket.get(), SHUT_WR);
  }

  void answer_all(Status status, const std::string& text) {
    for (std::size_t rank = 1; rank < world_size_; ++rank) {
      if (arrived_[rank]) answer(arrived_[rank]->socket, status, text);
    }
  }

  std::size_t world_size_;
  FileDescriptor listener_;
  int port_;
  Deadline deadline_;
  Notices notices_;
  std::vector<std::optional<Arrival>> arrived_;
  std::size_t num_arrived_ = 0;
  std::vector<Pending> pending_;
};

// ---- the others ----

struct MeetingPoint {
  std::vector<std::string> hosts;  // tried in turn
  int port = 0;
  std::string text() const { return fmt::format("{}:{}", hosts.front(), port); }
};

FileDescriptor connect_to_rank_0(const Identity& identity, const MeetingPoint& point,
                                 const Deadline& deadline, Notices& notices, std::string& reached) {
  std::string failure = "no attempt was made";
  while (true) {
    for (const std::string& host : point.hosts) {
      FileDescriptor socket = connect_tcp(host, point.port, deadline, failure);
      if (socket) {
        reached = peer_address(socket);
        return socket;
      }
    }
    if (deadline.passed()) {
      raise<CommError>(
          "rank {} could not reach rank 0 at {} within {:.1f} s: {}; check that rank 0 was "
          "started, and that "
          "MASTER_ADDR and MASTER_PORT are the same everywhere",
          identity.rank, point.text(), deadline.elapsed_seconds(), failure);
    }
    notices.maybe(deadline, [&] {
      return fmt::format("rank {} tries to reach rank 0 at {} since {:.0f} s: {}", identity.rank,
                         point.text(), deadline.elapsed_seconds(), failure);
    });
    std::this_thread::sleep_for(kRetry);
  }
}

std::string receive_reply(const Identity& identity, const FileDescriptor& socket,
                          const MeetingPoint& point, const Deadline& deadline) {
  const auto check = [&](IoStatus status) {
    if (status == IoStatus::kDone) return;
    raise<CommError>(
        "rank {} waited {:.1f} s for rank 0 at {} to start the job, but {}", identity.rank,
        deadline.elapsed_seconds(), point.text(),
        status == IoStatus::kTimeout
            ? "it did not answer; look at rank 0's output"
            : "it closed the connection; look at rank 0's output, and whether another program "
              "holds that port");
  };
  Reply reply;
  check(receive_all(socket, std::as_writable_bytes(std::span(&reply, 1)), deadline));
  if (reply.magic != kMagic || reply.bytes > kMaxReplyBytes) {
    raise<CommError>(
        "rank {}: what listens at {} is not rank 0 of this job; set MASTER_PORT to another port on "
        "all ranks",
        identity.rank, point.text());
  }
  std::string text(reply.bytes, '\0');
  check(receive_all(socket, std::as_writable_bytes(std::span(text)), deadline));
  if (reply.status == kConfigError) throw ConfigError(text);
  if (reply.status != kOk) throw CommError(text);
  return text;
}

std::vector<Met> join(const Identity& identity, const std::string& card,
                      const ExchangeOptions& options, const MeetingPoint& point) {
  const Deadline deadline(options.timeout);
  Notices notices(options);
  std::string reached;
  const FileDescriptor socket = connect_to_rank_0(identity, point, deadline, notices, reached);
  Hello hello;
  hello.world_size = static_cast<std::uint32_t>(identity.world_size);
  hello.rank = static_cast<std::uint32_t>(identity.rank);
  hello.card_bytes = static_cast<std::uint32_t>(card.size());
  if (send_all(socket, bytes_of(hello), deadline) == IoStatus::kDone) {
    send_all(socket, bytes_of(card), deadline);  // a failure shows in the reply
  }
  const Deadline patience(options.timeout + kGrace);
  const std::string table = receive_reply(identity, socket, point, patience);
  std::vector<Met> met;
  std::string_view rest = table;
  for (int rank = 0; rank < identity.world_size; ++rank) {
    Met entry;
    entry.card = take_text(rest);
    entry.address = take_text(rest);
    met.push_back(std::move(entry));
  }
  met[0].address = reached;
  return met;
}

// ---- Hydra ----

constexpr std::string_view kPmiKey = "tandem-rank-0";

// "port,address,address": PMI values hold no blanks and at most 1,024 bytes.
std::string meeting_text(const Identity& identity, int port) {
  std::string text = std::to_string(port);
  const auto add = [&](const std::string& host) {
    if (text.size() + host.size() < 1000) text += ',' + host;
  };
  if (identity.loopback()) {
    add("127.0.0.1");
    return text;
  }
  if (identity.master_addr_given) add(identity.master_addr);
  for (const std::string& address : own_addresses(identity.interface)) add(address);
  add(host_name());
  return text;
}

MeetingPoint read_meeting_text(std::string_view text) {
  MeetingPoint point;
  point.port = std::atoi(std::string(text.substr(0, text.find(','))).c_str());
  while (true) {
    const auto comma = text.find(',');
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    point.hosts.emplace_back(text.substr(0, text.find(',')));
  }
  if (point.port <= 0 || point.hosts.empty()) {
    raise<CommError>("the process manager returned a broken address of rank 0: '{}'", text);
  }
  return point;
}

std::vector<Met> exchange_through_pmi(const Identity& identity, const std::string& card,
                                      const ExchangeOptions& options) {
  PmiClient pmi(*identity.pmi_fd, options.timeout);
  FileDescriptor listener;
  if (identity.rank == 0) {
    listener =
        listen_tcp(identity.loopback(), identity.master_port_given ? identity.master_port : 0);
    pmi.put(kPmiKey, meeting_text(identity, local_port(listener)));
  }
  pmi.barrier();
  std::vector<Met> met;
  if (identity.rank == 0) {
    met = Server(identity, card, options, std::move(listener)).run();
  } else {
    met = join(identity, card, options, read_meeting_text(pmi.get(kPmiKey)));
  }
  // From here on tandem watches its ranks itself; Hydra need not take an early end for a crash.
  pmi.finalize();
  return met;
}

}  // namespace

std::vector<Met> exchange_cards(const Identity& identity, const std::string& card,
                                const ExchangeOptions& options) {
  TANDEM_CHECK(card.size() <= kMaxCardBytes, "card of {} bytes", card.size());
  if (!identity.distributed()) return {{card, ""}};
  if (identity.pmi_fd) return exchange_through_pmi(identity, card, options);
  if (identity.rank == 0) {
    return Server(identity, card, options, listen_tcp(identity.loopback(), identity.master_port))
        .run();
  }
  return join(identity, card, options, MeetingPoint{{identity.master_addr}, identity.master_port});
}

}  // namespace tandem::rendezvous
