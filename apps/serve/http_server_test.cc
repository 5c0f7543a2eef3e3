// Tests of behaviour that libmicrohttpd does not provide.
#include "apps/serve/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tandem::apps {
namespace {

using namespace std::chrono_literals;

class Server {
 public:
  explicit Server(const HttpServerOptions& options)
      : server_(options, {.at_once = [](const HttpRequest&) { return HttpResponse(); },
                          .compute = {},
                          .error = [](const HttpRequest&, int,
                                      const std::string&) { return HttpResponse(); }}),
        thread_([this] { server_.run(stop_); }) {}
  ~Server() {
    stop_ = true;
    thread_.join();
  }
  std::uint16_t port() const { return server_.port(); }

 private:
  std::atomic<bool> stop_{false};
  HttpServer server_;
  std::thread thread_;
};

class Client {
 public:
  // From 127.1.1.`host`: every client may have an address of its own.
  Client(std::uint16_t port, std::uint32_t host, const std::string& request)
      : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7f010100 + host);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    EXPECT_EQ(bind(descriptor_, reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(connect(descriptor_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    EXPECT_EQ(send(descriptor_, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
  }
  ~Client() { close(descriptor_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool is_answered_within(std::chrono::milliseconds limit) const {
    pollfd entry{.fd = descriptor_, .events = POLLIN, .revents = 0};
    char byte = 0;
    return poll(&entry, 1, static_cast<int>(limit.count())) > 0 &&
           recv(descriptor_, &byte, 1, 0) == 1;
  }

 private:
  int descriptor_;
};

// A question in chunks whose only trailer has this many bytes.
std::string with_trailer(std::size_t bytes) {
  return "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
         "X: " +
         std::string(bytes - 5, 'a') + "\r\n";
}

// The largest trailer that libmicrohttpd does not refuse at once: it ends with the last byte of the
// memory that a connection has.
std::size_t largest_trailer(std::uint16_t port) {
  std::size_t fits = 32000, refused = 33000;
  EXPECT_FALSE(Client(port, 1, with_trailer(fits)).is_answered_within(300ms));
  EXPECT_TRUE(Client(port, 1, with_trailer(refused)).is_answered_within(5s));
  while (refused - fits > 1) {
    const std::size_t middle = (fits + refused) / 2;
    (Client(port, 1, with_trailer(middle)).is_answered_within(300ms) ? refused : fits) = middle;
  }
  return fits;
}

// libmicrohttpd neither reads nor closes such connections, whatever their sockets report. Without a
// time-out they would occupy the server forever.
TEST(HttpServer, ConnectionsThatFillTheirMemoryToTheLastByteAreForgotten) {
  constexpr unsigned kConnections = 8;
  const Server server({.max_connections = kConnections, .request_limit = 500ms, .tick = 1ms});
  const std::string filling = with_trailer(largest_trailer(server.port()));
  std::vector<std::unique_ptr<Client>> clients;
  for (std::uint32_t host = 2; host < 2 + 4 * kConnections; ++host)
    clients.push_back(std::make_unique<Client>(server.port(), host, filling));
  const Client other(server.port(), 100, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(other.is_answered_within(10s));
}

}  // namespace
}  // namespace tandem::apps
