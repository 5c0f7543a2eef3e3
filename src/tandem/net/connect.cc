#include "tandem/net/connect.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tandem/core/descriptors.h"
#include "tandem/core/error.h"
#include "tandem/net/address.h"
#include "tandem/net/event_loop.h"

namespace tandem::net {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHeadStart{100};
constexpr milliseconds kAttempt{3000};
constexpr std::size_t kShownFailures = 4;

// One address, from the connection attempt to a completed handshake.
class Attempt {
 public:
  Attempt(const Address& address, const Handshake& handshake)
      : address_(address), handshake_(handshake), limit_(kAttempt) {
    socket_ = FileDescriptor(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_) {
      if (out_of_descriptors(errno))
        raise_out_of_descriptors("cannot connect to " + address.text, errno);
      fail(std::strerror(errno));
    } else if (::connect(socket_.get(), address.get(), address.length) == 0) {
      connected();
    } else if (errno != EINPROGRESS) {
      fail(std::strerror(errno));
    }
  }

  bool failed() const { return !socket_; }
  bool won() const { return won_; }
  std::string failure() const { return fmt::format("{}: {}", address_.text, failure_); }
  void add_to(EventLoop& loop) {
    if (connected_) {
      loop.read(socket_, [this] { read_answer(); });
    } else {
      loop.write(socket_, [this] { check_connected(); });
    }
  }
  Connected take() { return {std::move(socket_), address_.text, answer_}; }

  void check_limit() {
    if (socket_ && !won_ && limit_.passed()) {
      fail(connected_ ? "it accepted the connection and did not answer" : std::strerror(ETIMEDOUT));
    }
  }

 private:
  void check_connected() {
    int error_number = 0;
    socklen_t size = sizeof error_number;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
    if (error_number != 0) return fail(std::strerror(error_number));
    connected();
  }

  void connected() {
    connected_ = true;
    set_no_delay(socket_);
    const auto bytes = std::as_bytes(std::span(handshake_.request));
    // Small enough for an empty socket buffer.
    if (send_all(socket_, bytes, Deadline(milliseconds(0))) != IoStatus::kDone) {
      return fail("it closed the connection");
    }
    won_ = handshake_.answer_bytes == 0;
  }

  void read_answer() {
    char bytes[256];
    while (answer_.size() < handshake_.answer_bytes) {
      const std::size_t want = std::min(sizeof bytes, handshake_.answer_bytes - answer_.size());
      const ssize_t count = ::recv(socket_.get(), bytes, want, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count <= 0) return fail("it closed the connection");
      answer_.append(bytes, static_cast<std::size_t>(count));
    }
    won_ = handshake_.accept(answer_);
    if (!won_) fail("another program listens there");
  }

  void fail(const char* why) {
    failure_ = why;
    socket_.reset();
  }

  const Address& address_;
  const Handshake& handshake_;
  Deadline limit_;
  FileDescriptor socket_;
  bool connected_ = false;
  bool won_ = false;
  std::string answer_;
  std::string failure_;
};

std::vector<Address> resolve_all(std::span<const std::string> hosts, int port,
                                 std::vector<std::string>& failures) {
  std::vector<Address> addresses;
  for (const std::string& host : hosts) {
    Resolved found = resolve(host, port);
    if (!found.failure.empty())
      failures.push_back(fmt::format("the name '{}' does not resolve: {}", host, found.failure));
    for (Address& address : found.addresses) {
      const bool known = std::any_of(addresses.begin(), addresses.end(),
                                     [&](const Address& a) { return a.text == address.text; });
      if (!known) addresses.push_back(std::move(address));
    }
  }
  return addresses;
}

std::string describe(const std::vector<std::string>& failures) {
  std::string text;
  for (std::size_t i = 0; i < failures.size() && i < kShownFailures; ++i) {
    text += (i == 0 ? "" : "; ") + failures[i];
  }
  if (failures.size() > kShownFailures) {
    text += fmt::format("; and {} more", failures.size() - kShownFailures);
  }
  return text.empty() ? "it has no address" : text;
}

}  // namespace

Connected connect_first(std::span<const std::string> hosts, int port, const Handshake& handshake,
                        const Deadline& deadline, std::string& failure) {
  std::vector<std::string> failures;
  const std::vector<Address> addresses = resolve_all(hosts, port, failures);
  std::vector<std::unique_ptr<Attempt>> attempts;
  std::size_t next = 0;
  Deadline head_start{milliseconds(0)};
  while (true) {
    std::erase_if(attempts, [&](const std::unique_ptr<Attempt>& attempt) {
      if (attempt->failed()) failures.push_back(attempt->failure());
      return attempt->failed();
    });
    for (const auto& attempt : attempts) {
      if (attempt->won()) return attempt->take();
    }
    if (attempts.empty() && next == addresses.size()) break;
    if (deadline.passed()) {
      // The failure of an earlier round is more specific.
      if (failures.empty() && !failure.empty()) return {};
      failures.emplace_back("no answer");
      break;
    }
    if (next < addresses.size() && (attempts.empty() || head_start.passed())) {
      attempts.push_back(std::make_unique<Attempt>(addresses[next++], handshake));
      head_start = Deadline(kHeadStart);
      continue;
    }
    EventLoop loop;
    for (const auto& attempt : attempts) attempt->add_to(loop);
    loop.until(deadline);
    loop.run_once(milliseconds(head_start.passed() ? 100 : head_start.remaining_ms()));
    for (const auto& attempt : attempts) attempt->check_limit();
    if (handshake.check) handshake.check();
  }
  failure = describe(failures);
  return {};
}

}  // namespace tandem::net
