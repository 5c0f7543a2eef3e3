#include "tandem/elastic/agent/agent_links.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/net/address.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/job_token.h"

namespace tandem::elastic {
namespace {

using membership::AppMessage;
using membership::AppMessageKind;
using membership::Channel;
using membership::Frame;
using membership::Message;
using membership::NodeId;
using membership::Peer;
using net::Address;
using net::FileDescriptor;
using std::chrono::milliseconds;
using Clock = AgentLinks::Clock;

constexpr std::string_view kRefusal{"TNDMAGNO", 8};  // replaces a frame
constexpr std::size_t kMostFirstFrame = 4096;
constexpr std::size_t kMostIncoming = 20000;
constexpr std::size_t kMostUnopened = 256;                  // messages before a connection is open
constexpr std::size_t kMostUnsent = std::size_t{64} << 20;  // bytes after it
constexpr milliseconds kIntroduction{3000};
constexpr milliseconds kConnect{2000};
constexpr milliseconds kHostSilence{3000};
// Between retries: at first a dying process may need only moments to disappear.
constexpr milliseconds kSoon{20};
constexpr int kSoonTries = 5;
constexpr milliseconds kLater{500};
// A peer that is refused repeatedly does not fill the log.
constexpr milliseconds kNoticeEvery{10000};

// Reads the available bytes, up to a few pieces: a peer that sends without a pause neither fills
// the memory nor keeps this agent from the others. False: the connection has ended.
bool read_some(const FileDescriptor& socket, std::string& to) {
  char bytes[16384];
  for (int pieces = 0; pieces < 16; ++pieces) {
    const ssize_t count = ::recv(socket.get(), bytes, sizeof bytes, 0);
    if (count > 0) {
      to.append(bytes, static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return count < 0 && errno == EAGAIN;
    }
  }
  return true;
}

// Sends what fits; false: the connection has ended.
bool write_some(const FileDescriptor& socket, std::string& from) {
  std::size_t done = 0;
  bool alive = true;
  while (done < from.size()) {
    const ssize_t count =
        ::send(socket.get(), from.data() + done, from.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      alive = errno == EAGAIN;
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  from.erase(0, done);
  return alive;
}

// The next frame at the front of the received bytes. Throws CommError.
std::optional<Frame> next_frame(Channel& channel, std::string& received) {
  const std::optional<net::Frame> frame = net::decode_frame(membership::kAgentProtocol, received);
  if (!frame) return std::nullopt;
  received.erase(0, net::kFrameHeadBytes + frame->payload.size());
  return membership::decode(channel, *frame);
}

// A separate thread looks up a name. It may take many seconds and outlive the object that asked.
class Lookup {
 public:
  Lookup(const std::string& host, int port) {
    if (find(host, port, AI_NUMERICHOST, *shared_)) return;
    std::thread([host, port, shared = shared_] { find(host, port, 0, *shared); }).detach();
  }
  bool done() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->done;
  }
  std::vector<Address> addresses() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->addresses;
  }

 private:
  struct Shared {
    std::mutex mutex;
    bool done = false;
    std::vector<Address> addresses;
  };

  static bool find(const std::string& host, int port, int flags, Shared& shared) {
    net::Resolved found = net::resolve(host, port, flags);
    const std::lock_guard lock(shared.mutex);
    shared.addresses = std::move(found.addresses);
    shared.done = !shared.addresses.empty() || flags == 0;
    return shared.done;
  }

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace

struct AgentLinks::Incoming {
  FileDescriptor socket;
  Channel channel;
  std::string received;
  std::string unsent;
  Peer from;
};

// The connection to one address: none, being made, or open. It is made when there is something to
// send, and once more after its end, to learn whether an agent is still there.
class AgentLinks::Outgoing {
 public:
  Outgoing(AgentLinks& links, std::string address) : links_(links), address_(std::move(address)) {}

  void send(NodeId to, const Message& message) {
    if (to != 0) addressees_.insert(to);
    if (state_ == State::kOpen) return put(to, message);
    if (waiting_.size() < kMostUnopened) waiting_.push_back({to, message});
  }
  // Asks the agent at the address for a sign of life.
  void probe() {
    if (state_ != State::kNone) return;
    probing_ = true;
    retry_.count = 0;
    retry_.at = Clock::now();
  }
  bool idle() const { return waiting_.empty() && unsent_.empty(); }

  void add_to(net::EventLoop& loop) const {
    loop.read(socket_);
    if (state_ == State::kConnecting || !unsent_.empty()) loop.write(socket_);
    if (state_ == State::kNone && wanted()) loop.until(retry_.at);
    if (state_ == State::kLookup) loop.within(kSoon);
    if (state_ != State::kNone && state_ != State::kOpen) loop.until(limit_);
  }

  void serve(Clock::time_point now) {
    if (state_ == State::kNone && wanted() && now >= retry_.at) begin(now);
    if (state_ == State::kLookup && lookup_->done()) {
      candidates_.untried = lookup_->addresses();
      lookup_.reset();
      candidates_.all_refused = !candidates_.untried.empty();
      next_address(now);
    }
    if (state_ == State::kConnecting) check_connected(now);
    if (state_ == State::kHandshake || state_ == State::kProving || state_ == State::kOpen) {
      if (!talk()) return fail(now, ECONNRESET);
    }
    if (state_ != State::kNone && state_ != State::kOpen && now >= limit_) fail(now, ETIMEDOUT);
  }

 private:
  enum class State { kNone, kLookup, kConnecting, kHandshake, kProving, kOpen };

  bool wanted() const { return probing_ || !waiting_.empty(); }

  void begin(Clock::time_point now) {
    const auto where = net::split_host(address_);
    lookup_.emplace(where ? where->host : "", where ? where->number.value_or(0) : 0);
    state_ = State::kLookup;
    limit_ = now + kConnect;
  }

  void next_address(Clock::time_point now) {
    if (candidates_.untried.empty()) return give_up(now, false);
    const Address address = candidates_.untried.front();
    candidates_.untried.erase(candidates_.untried.begin());
    socket_ = FileDescriptor(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    state_ = State::kConnecting;
    limit_ = now + kConnect;
    if (!socket_) return fail(now, errno);
    if (::connect(socket_.get(), address.get(), address.length) != 0 && errno != EINPROGRESS)
      fail(now, errno);
  }

  void check_connected(Clock::time_point now) {
    if (!net::wait_writable(socket_.get(), net::Deadline(milliseconds(0)))) return;
    int error_number = 0;
    socklen_t size = sizeof error_number;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
    if (error_number != 0) return fail(now, error_number);
    net::set_no_delay(socket_);
    net::retransmit_steadily(socket_);
    net::watch_host(socket_, kHostSilence);
    own_greeting_ = net::make_handshake();
    unsent_ = own_greeting_;
    received_.clear();
    state_ = State::kHandshake;
  }

  // False: it has ended, or the peer is not an agent of this job.
  bool talk() {
    const bool alive = read_some(socket_, received_);
    try {
      if (state_ == State::kHandshake && !greeted()) return alive && write_some(socket_, unsent_);
      if (state_ == State::kProving && received_.starts_with(kRefusal))
        raise<CommError>("it has another job token (TANDEM_JOB_TOKEN) than this agent");
      while (auto frame = next_frame(channel_, received_)) handle(*frame);
    } catch (const net::DamagedFrame& error) {
      links_.report_damage(address_, error.what());
      return false;
    } catch (const CommError& error) {
      if (state_ == State::kOpen) {
        links_.options_.log(fmt::format("the agent at {}: {}", address_, error.what()));
      } else {
        links_.news_.unauthenticated_peers.push_back({address_, error.what()});
      }
      return false;
    }
    return alive && write_some(socket_, unsent_) && unsent_.size() < kMostUnsent;
  }

  bool greeted() {
    if (received_.size() < net::kHandshakeBytes) return false;
    if (net::is_damaged_handshake(received_))
      raise<net::DamagedFrame>("the first bytes of a connection arrived damaged");
    if (!net::is_handshake(received_))
      raise<CommError>("what listens there is no agent of tandem run");
    channel_ = links_.channel(own_greeting_, received_.substr(0, net::kHandshakeBytes));
    received_.erase(0, net::kHandshakeBytes);
    state_ = State::kProving;
    put(0, AppMessage{});
    return true;
  }

  void handle(const Frame& frame) {
    if (state_ != State::kProving) return;
    state_ = State::kOpen;
    probing_ = false;
    retry_.count = 0;
    links_.note_address(frame.from.id, address_);
    for (const auto& [to, message] : std::exchange(waiting_, {})) put(to, message);
  }

  void put(NodeId to, const Message& message) {
    try {
      unsent_ += membership::encode(channel_, {links_.options_.self, to, message});
    } catch (const InvalidArgument& error) {
      links_.options_.log(fmt::format("not sent to the agent at {}: {}", address_, error.what()));
    }
  }

  void fail(Clock::time_point now, int error_number) {
    const bool was_open = state_ == State::kOpen;
    candidates_.all_refused = candidates_.all_refused && error_number == ECONNREFUSED;
    const bool more = state_ == State::kConnecting && !candidates_.untried.empty();
    socket_.reset();
    if (more) return next_address(now);
    give_up(now, candidates_.all_refused);
    if (was_open) probe();
  }

  void give_up(Clock::time_point now, bool certain) {
    state_ = State::kNone;
    lookup_.reset();
    candidates_.untried.clear();
    unsent_.clear();
    waiting_.clear();
    retry_.at = now + (++retry_.count < kSoonTries ? kSoon : kLater);
    if (retry_.count >= kSoonTries || certain) probing_ = false;
    if (certain) links_.nobody_at(address_, std::exchange(addressees_, {}));
  }

  struct Retry {
    int count = 0;  // failed attempts
    Clock::time_point at = Clock::now();
  };

  struct Candidates {
    std::vector<Address> untried;
    bool all_refused = false;
  };

  AgentLinks& links_;
  const std::string address_;
  std::set<NodeId> addressees_;  // since the address last refused
  State state_ = State::kNone;
  bool probing_ = false;
  Retry retry_;
  Clock::time_point limit_;
  std::optional<Lookup> lookup_;
  Candidates candidates_;
  FileDescriptor socket_;
  std::string own_greeting_;
  Channel channel_;
  std::string received_;
  std::string unsent_;
  std::deque<std::pair<NodeId, Message>> waiting_;
};

AgentLinks::AgentLinks(FileDescriptor listener, AgentLinksOptions options)
    : listener_(std::move(listener)), options_(std::move(options)), pending_(kIntroduction, 256) {}

AgentLinks::~AgentLinks() = default;

Channel AgentLinks::channel(std::string_view own_nonce, std::string_view other_nonce) const {
  return {.job = options_.job,
          .own_nonce = std::string(own_nonce),
          .other_nonce = std::string(other_nonce),
          .prove = [token = options_.token](auto parts) { return net::prove(token, parts); }};
}

AgentLinks::Outgoing& AgentLinks::outgoing(const std::string& address) {
  auto& link = outgoing_[address];
  if (!link) link = std::make_unique<Outgoing>(*this, address);
  return *link;
}

void AgentLinks::send(const Peer& to, const Message& message) {
  if (to.address.empty() || to.address == options_.self.address || dead_.contains(to.id)) return;
  outgoing(to.address).send(to.id, message);
}

// ---- addresses of nodes ----

void AgentLinks::report_dead(NodeId id) {
  if (id == 0 || id == options_.self.id || !dead_.insert(id).second) return;
  news_.dead.push_back(id);
}

void AgentLinks::note_address(NodeId id, const std::string& address) {
  if (id == 0 || dead_.contains(id)) return;
  NodeId& known = at_[address];
  if (known != 0 && known != id) report_dead(known);
  known = id;
}

void AgentLinks::nobody_at(const std::string& address, const std::set<NodeId>& addressees) {
  news_.nobody_at.push_back(address);
  for (const NodeId id : addressees) report_dead(id);
  const auto it = at_.find(address);
  if (it != at_.end()) report_dead(it->second);
}

// ---- incoming connections ----

void AgentLinks::let_in() {
  pending_.accept_from(listener_, [] { return net::make_handshake(); });
  const auto wanted = [&](const std::string& received) -> std::size_t {
    if (received.size() < net::kHandshakeBytes) return net::kHandshakeBytes;
    if (net::is_visitor_handshake(received)) return net::kHandshakeBytes;
    if (!net::is_handshake(received)) return 0;
    try {
      const std::size_t bytes = net::frame_bytes(
          membership::kAgentProtocol, std::string_view(received).substr(net::kHandshakeBytes));
      return bytes > kMostFirstFrame ? 0 : net::kHandshakeBytes + bytes;
    } catch (const CommError& error) {
      report_unauthenticated_peer(fmt::format("an agent was shown out: {}", error.what()));
      return 0;
    }
  };
  while (auto connection = pending_.take_complete(wanted)) admit(std::move(*connection));
}

void AgentLinks::report_unauthenticated_peer(const std::string& text) {
  const auto now = Clock::now();
  if (now < next_notice_) {
    ++suppressed_;
    return;
  }
  next_notice_ = now + kNoticeEvery;
  const std::size_t suppressed = std::exchange(suppressed_, 0);
  options_.log(suppressed == 0
                   ? text
                   : fmt::format("{} (and {} more since the last line)", text, suppressed));
}

// The connection is opened anew, and the messages that matter are sent again.
void AgentLinks::report_damage(const std::string& other, const std::string& what) {
  report_unauthenticated_peer(fmt::format(
      "the link from the agent at {} to this host is damaged: {}; its connection is opened anew. "
      "Check the network cards, cables and switches between these two hosts",
      other, what));
}

void AgentLinks::admit(net::PendingConnection connection) {
  if (net::is_visitor_handshake(connection.received))
    return news_.visitors.push_back(std::move(connection));
  if (incoming_.size() >= kMostIncoming) return;
  auto incoming = std::make_unique<Incoming>();
  incoming->channel =
      channel(connection.challenge, connection.received.substr(0, net::kHandshakeBytes));
  incoming->received = connection.received.substr(net::kHandshakeBytes);
  incoming->socket = std::move(connection.socket);
  net::watch_host(incoming->socket, kHostSilence);
  try {
    const auto frame = next_frame(incoming->channel, incoming->received);
    if (!frame) return;
    incoming->from = frame->from;
  } catch (const net::DamagedFrame& error) {
    return report_damage(net::peer_address(incoming->socket), error.what());
  } catch (const CommError& error) {
    report_unauthenticated_peer(fmt::format("an agent at {} was shown out: {}",
                                            net::peer_address(incoming->socket), error.what()));
    // The peer learns the reason. Nothing is proved to it: it could show this agent's proof to
    // another agent.
    std::string refusal(kRefusal);
    write_some(incoming->socket, refusal);
    return;
  }
  incoming->unsent = membership::encode(incoming->channel, {options_.self, 0, AppMessage{}});
  note_address(incoming->from.id, incoming->from.address);
  incoming_.push_back(std::move(incoming));
}

void AgentLinks::take(Frame frame) {
  if (dead_.contains(frame.from.id) || (frame.to != 0 && frame.to != options_.self.id)) return;
  note_address(frame.from.id, frame.from.address);
  news_.frames.push_back(std::move(frame));
}

bool AgentLinks::handle(Incoming& incoming) {
  const bool alive = read_some(incoming.socket, incoming.received);
  try {
    while (auto frame = next_frame(incoming.channel, incoming.received)) take(std::move(*frame));
  } catch (const net::DamagedFrame& error) {
    report_damage(incoming.from.address, error.what());
    return false;
  } catch (const CommError& error) {
    options_.log(fmt::format("the agent at {}: {}", incoming.from.address, error.what()));
    return false;
  }
  return alive && write_some(incoming.socket, incoming.unsent);
}

// ---- the loop ----

void AgentLinks::add_to(net::EventLoop& loop) const {
  pending_.add_listener(listener_, loop);
  pending_.add_to(loop);
  for (const auto& incoming : incoming_) {
    loop.read(incoming->socket);
    if (!incoming->unsent.empty()) loop.write(incoming->socket);
  }
  for (const auto& [address, link] : outgoing_) link->add_to(loop);
}

AgentLinks::News AgentLinks::serve() {
  let_in();
  std::vector<std::string> ended;
  std::erase_if(incoming_, [&](const auto& incoming) {
    if (handle(*incoming)) return false;
    ended.push_back(incoming->from.address);
    return true;
  });
  for (const std::string& address : ended) {
    if (!address.empty() && address != options_.self.address) outgoing(address).probe();
  }
  const auto now = Clock::now();
  for (const auto& [address, link] : outgoing_) link->serve(now);
  return std::exchange(news_, {});
}

bool AgentLinks::flushed() const {
  return std::all_of(outgoing_.begin(), outgoing_.end(),
                     [](const auto& entry) { return entry.second->idle(); });
}

}  // namespace tandem::elastic
