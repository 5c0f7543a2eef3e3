// What comes to the port at which rank 0 waits for the others, up to the end of the connection: it
// does not crash, hang or take the stranger for a rank. Two jobs wait, one with a token.
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/rendezvous/exchange.h"

namespace {

using namespace tandem;
using rendezvous::Deadline;
using rendezvous::FileDescriptor;

// Rank 0 of a job of two whose other rank never comes.
class Waiting {
 public:
  explicit Waiting(const std::string& token) {
    identity_.local_size = identity_.world_size = 2;
    identity_.job_token = token;
    {
      const FileDescriptor any = rendezvous::listen_tcp(true, 0);
      identity_.master_port = rendezvous::local_port(any);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~Waiting() {
    stop_ = true;
    thread_.join();
  }
  bool ended() const { return ended_; }
  int port() const { return identity_.master_port; }

 private:
  struct Stop {};
  void run() {
    rendezvous::ExchangeOptions options;
    options.timeout = std::chrono::hours(24);
    options.check = [this] {
      if (stop_) throw Stop();
    };
    try {
      (void)rendezvous::exchange_cards(identity_, "card", options);
      // With a token nobody but a rank is taken for one. Without, whoever speaks the protocol is.
      fuzz::require(identity_.job_token.empty());
    } catch (const Error&) {  // says why the job cannot start
    } catch (const Stop&) {
    }
    ended_ = true;
  }

  rendezvous::Identity identity_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

FileDescriptor visit(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    socket.reset();
  return socket;
}

void meet(std::unique_ptr<Waiting>& rank, const std::string& token, const std::uint8_t* data,
          std::size_t size) {
  if (!rank || rank->ended()) rank = std::make_unique<Waiting>(token);
  const Deadline deadline(std::chrono::seconds(8));
  FileDescriptor stranger = visit(rank->port());
  while (!stranger && !rank->ended() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    stranger = visit(rank->port());
  }
  fuzz::require(stranger || rank->ended());
  if (!stranger || ::send(stranger.get(), data, size, MSG_NOSIGNAL) < 0) return;
  ::shutdown(stranger.get(), SHUT_WR);
  const timeval limit{8, 0};
  ::setsockopt(stranger.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char answer[4096];
  ssize_t count = 0;
  while ((count = ::recv(stranger.get(), answer, sizeof answer, 0)) > 0) {
  }
  fuzz::require(count == 0 || errno != EAGAIN);  // its end is answered by an end
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<Waiting> open;
  static std::unique_ptr<Waiting> closed;
  if (size > 65536) return 0;
  meet(open, "", data, size);
  meet(closed, "a secret", data, size);
  return 0;
}
