// The bootstrap on every rank but rank 0.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/net/address.h"
#include "tandem/net/connect.h"
#include "tandem/net/event_loop.h"
#include "tandem/rendezvous/bootstrap_roles.h"
#include "tandem/rendezvous/bootstrap_wire.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;
using wire::HandshakeMessage;

constexpr milliseconds kRetry{50};
constexpr milliseconds kLook{500};
// A failed rank logs that it tries to notify rank 0 when this much time has passed.
constexpr milliseconds kQuietTry{1000};

std::string describe(const Rank0Address& point) {
  return net::join_host(point.hosts.front(), point.port);
}

[[noreturn]] void not_rank_0(const Identity& identity, const Rank0Address& point) {
  raise<CommError>(
      "rank {}: the process that listens at {} is not rank 0 of this job; set MASTER_PORT to "
      "another port on all ranks",
      identity.rank, describe(point));
}

// Returns when rank 0 has sent its handshake or the time has passed.
net::Connected reach_rank_0(const Identity& identity, const Rank0Address& point,
                            const net::Deadline& deadline, Notices& notices,
                            const LookAround& look_around) {
  bool unauthenticated_peer = false;
  net::Handshake handshake;
  handshake.answer_bytes = sizeof(wire::Challenge);
  handshake.check = look_around;
  handshake.accept = [&](const std::string& answer) {
    const auto challenge = wire::read_as<wire::Challenge>(answer);
    const bool right = challenge.magic == wire::kMagic && challenge.job == point.job;
    const bool damaged = challenge.magic == wire::kMagic && wire::is_damaged(challenge);
    unauthenticated_peer = unauthenticated_peer || !(right || damaged);
    return right && !damaged;  // a damaged handshake is sent again
  };
  std::string failure;
  while (true) {
    net::Connected found =
        net::connect_first(point.hosts, point.port, handshake, deadline, failure);
    if (found.socket) return found;
    if (unauthenticated_peer && point.hosts.size() == 1) not_rank_0(identity, point);
    if (deadline.passed()) {
      raise<CommError>(
          "rank {} could not reach rank 0 at {} within {:.1f} s: {}; check that rank 0 was "
          "started, and that MASTER_ADDR and MASTER_PORT are the same everywhere",
          identity.rank, describe(point), deadline.elapsed_seconds(), failure);
    }
    notices.maybe(deadline, [&] {
      return fmt::format("rank {} has tried to reach rank 0 at {} for {:.0f} s: {}", identity.rank,
                         describe(point), deadline.elapsed_seconds(), failure);
    });
    if (look_around) look_around();
    std::this_thread::sleep_for(kRetry);
  }
}

// Used by a rank that has failed: rank 0 may start later, or never.
net::Connected reach_to_notify(const Identity& identity, const Rank0Address& point,
                               const BootstrapOptions& options) {
  const BootstrapOptions quiet;
  Notices notices(quiet);
  const milliseconds limit = options.late_rank_0;
  try {
    return reach_rank_0(identity, point, net::Deadline(std::min(limit, kQuietTry)), notices, {});
  } catch (const CommError&) {
    if (limit <= kQuietTry) throw;
  }
  if (options.log) {
    options.log(
        fmt::format("rank {} tries for {:.0f} s to report its failure to rank 0 at {}; Ctrl-C "
                    "ends it at once",
                    identity.rank, std::chrono::duration<double>(limit).count(), describe(point)));
  }
  return reach_rank_0(identity, point, net::Deadline(limit - kQuietTry), notices, {});
}

// Rank 0 received a damaged handshake.
class DamagedHandshake : public CommError {
 public:
  using CommError::CommError;
};

// Reply of rank 0 to this rank, and the proof that it comes from rank 0.
class Line {
 public:
  Line(const Identity& identity, const Rank0Address& point, net::Connected connected,
       std::function<void(const std::string&)> log, LookAround look_around)
      : rank_(identity.rank),
        where_(describe(point)),
        token_(identity.job_token),
        socket_(std::move(connected.socket)),
        challenge_(wire::read_as<wire::Challenge>(connected.answer)),
        nonce_sent_(net::make_nonce()),
        received_(wire::from_rank_0(static_cast<std::size_t>(identity.world_size))),
        log_(std::move(log)),
        look_around_(std::move(look_around)) {
    net::watch_host(socket_, kStartSilence);
    if (challenge_.version != wire::kVersion) {
      raise<ConfigError>(
          "rank 0 at {} has version {} of the rendezvous protocol, rank {} has version {}; "
          "install the same tandem on all hosts",
          where_, challenge_.version, rank_, wire::kVersion);
    }
  }

  const net::FileDescriptor& socket() const { return socket_; }
  const std::string& where() const { return where_; }
  void look_around() const {
    if (look_around_) look_around_();
  }

  // `gave_up`: the rank has failed, and `peer_info` holds the reason.
  void introduce(const Identity& identity, const std::string& peer_info,
                 const net::Deadline& deadline, bool gave_up = false) {
    HandshakeMessage rank_handshake;
    rank_handshake.world_size = static_cast<std::uint32_t>(identity.world_size);
    rank_handshake.rank = static_cast<std::uint32_t>(rank_);
    rank_handshake.has_token = token_.empty() ? 0 : 1;
    rank_handshake.gave_up = gave_up ? 1 : 0;
    rank_handshake.nonce = nonce_sent_;
    rank_handshake.proof =
        wire::handshake_proof(token_, challenge_.nonce, rank_handshake, peer_info);
    const std::string bytes = wire::handshake_frame(rank_handshake, peer_info);
    net::send_all(socket_, std::as_bytes(std::span(bytes)),
                  deadline);  // a failure shows in the reply
  }

  // Reads replies until one decides; returns its text, or throws its error.
  std::string receive_answer(const net::Deadline& deadline) {
    while (true) {
      const net::Frame reply = receive(deadline);
      std::string text = text_of(reply);
      if (reply.kind != wire::kNotice) return text;
      if (log_) log_(text);
    }
  }

 private:
  // Throws the error that the reply reports.
  std::string text_of(const net::Frame& reply) const {
    net::PlainReader reader(reply.payload, "rank 0");
    const auto proof = reader.value<net::ProofCode>();
    const std::string text(reader.rest());
    const auto kind = static_cast<wire::Kind>(reply.kind);
    if (kind == wire::kDamaged) throw DamagedHandshake(text);
    if (kind == wire::kConfigError) throw ConfigError(text);
    if (kind != wire::kOk && kind != wire::kNotice) throw CommError(text);
    const auto expected = wire::reply_proof(token_, challenge_.nonce, nonce_sent_, kind, text);
    if (!net::same_proof(proof, expected)) {
      raise<ConfigError>(
          "rank {} refused the process at {} as rank 0: it does not know this rank's "
          "TANDEM_JOB_TOKEN; give all ranks the same token",
          rank_, where_);
    }
    return text;
  }

  // The next reply, if it is complete.
  std::optional<net::Frame> take() {
    try {
      return received_.take();
    } catch (const net::DamagedFrame&) {
      raise<CommError>(
          "the link from rank 0 at {} to rank {} is damaged: a reply arrived with a wrong "
          "checksum; check the network cards, cables and switches between these two hosts",
          where_, rank_);
    } catch (const CommError& error) {
      raise<CommError>("rank {} received an invalid answer of rank 0 from {}: {}", rank_, where_,
                       error.what());
    }
  }

  // Later replies stay in the kernel: they wake the poll of a BootstrapMonitor.
  std::optional<int> read() {
    try {
      return received_.read_one_from(socket_);
    } catch (const CommError&) {  // take() reports it
      return std::nullopt;
    }
  }

  net::Frame receive(const net::Deadline& deadline) {
    while (true) {
      const std::optional<int> end = read();
      if (std::optional<net::Frame> reply = take()) return std::move(*reply);
      if (end || deadline.passed()) raise_silence(deadline, end.has_value());
      net::EventLoop loop;
      loop.read(socket_);
      loop.until(deadline);
      if (!loop.run_once(kLook)) look_around();
    }
  }

  [[noreturn]] void raise_silence(const net::Deadline& deadline, bool closed) const {
    raise<CommError>(
        "rank {} waited {:.1f} s for rank 0 at {} to start the job, but {}", rank_,
        deadline.elapsed_seconds(), where_,
        closed ? "it closed the connection; look at rank 0's output, and whether another program "
                 "holds that port"
               : "it did not answer; look at rank 0's output");
  }

  int rank_;
  std::string where_;
  std::string token_;
  net::FileDescriptor socket_;
  wire::Challenge challenge_;
  net::Nonce nonce_sent_;
  net::FrameReader received_;
  std::function<void(const std::string&)> log_;  // may be empty
  LookAround look_around_;
};

class ClientMonitor final : public BootstrapMonitor {
 public:
  ClientMonitor(int rank, Line line) : rank_(rank), line_(std::move(line)) {}

  void watch_hosts(milliseconds silence) override { net::watch_host(line_.socket(), silence); }

  void add_to(net::EventLoop& loop) const override { loop.read(line_.socket()); }

  void check() override {
    char byte = 0;
    const ssize_t count = ::recv(line_.socket().get(), &byte, 1, MSG_PEEK);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return line_.look_around();
    if (count <= 0) {
      raise<CommError>("rank 0 (at {}) died while the ranks were connecting to each other{}",
                       line_.where(), silence_if(count < 0 ? errno : 0));
    }
    line_.receive_answer(net::Deadline(kGrace));
    all_ready_ = true;
  }

  void finish(const net::Deadline& deadline) override {
    send(wire::kReady, "");
    const net::Deadline timeout(
        std::chrono::ceil<milliseconds>(std::chrono::duration<double>(deadline.limit_seconds())) +
        kGrace);
    while (!all_ready_) {
      if (timeout.passed()) {
        raise<CommError>(
            "rank {} waited {:.1f} s for rank 0 at {} to report that all ranks are ready", rank_,
            timeout.elapsed_seconds(), line_.where());
      }
      net::EventLoop loop;
      add_to(loop);
      loop.until(timeout);
      loop.run_once(milliseconds(500));
      check();
    }
  }

  void give_up(std::string_view reason) noexcept override {
    try {
      send(wire::kGaveUp, reason.substr(0, wire::kMaxTextBytes));
    } catch (...) {  // no memory: the end of the connection is the message
    }
  }

 private:
  void send(wire::Kind kind, std::string_view text) {
    const std::string bytes = net::encode_frame(wire::kToRank0, kind, {text});
    net::send_all(line_.socket(), std::as_bytes(std::span(bytes)), net::Deadline(kGrace));
  }

  int rank_;
  Line line_;
  bool all_ready_ = false;
};

}  // namespace

BootstrapResult join_rank_0(const Identity& identity, const std::string& peer_info,
                            const BootstrapOptions& options, const Rank0Address& point,
                            const LookAround& look_around) {
  const net::Deadline deadline(options.timeout);
  Notices notices(options);
  std::string reached;
  std::optional<std::string> table;
  std::optional<Line> line;
  for (int tries = 1; !table; ++tries) {
    net::Connected connected = reach_rank_0(identity, point, deadline, notices, look_around);
    reached = connected.address;
    line.emplace(identity, point, std::move(connected), options.log, look_around);
    line->introduce(identity, peer_info, deadline);
    try {
      table = line->receive_answer(net::Deadline(options.timeout + kGrace));
    } catch (const DamagedHandshake& error) {
      if (tries == wire::kMostTries) throw;
      if (options.log) options.log(error.what());
      line.reset();
    }
  }
  BootstrapResult bootstrap_result;
  net::PlainReader rest(*table, "rank 0");
  for (int rank = 0; rank < identity.world_size; ++rank) {
    Met entry;
    entry.peer_info = rest.text();
    entry.address = rest.text();
    bootstrap_result.met.push_back(std::move(entry));
  }
  bootstrap_result.met[0].address = reached;
  bootstrap_result.bootstrap_monitor =
      std::make_unique<ClientMonitor>(identity.rank, std::move(*line));
  return bootstrap_result;
}

void notify_rank_0(const Identity& identity, const std::string& reason,
                   const BootstrapOptions& options, const Rank0Address& point) {
  Line line(identity, point, reach_to_notify(identity, point, options), {}, {});
  const net::Deadline deadline(kGrace);
  line.introduce(identity, reason.substr(0, wire::kMaxTextBytes), deadline, /*gave_up=*/true);
  try {
    line.receive_answer(deadline);
  } catch (const CommError&) {  // it has the report, and ends as well
  }
}

}  // namespace tandem::rendezvous
