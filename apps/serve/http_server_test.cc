// Tests of behaviour that libmicrohttpd does not provide.
#include "apps/serve/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/core/interruption.h"

namespace tandem::apps {
namespace {

using namespace std::chrono_literals;

HttpHandlers answers_at_once() {
  return {.at_once = [](const HttpRequest&) { return HttpResponse(); },
          .compute = {},
          .error = [](const HttpRequest&, int, const std::string&) { return HttpResponse(); }};
}

// All bodies are streams of a thread.
HttpHandlers streams(
    std::function<void(const SendPiece& send, const std::stop_token& cancelled)> stream) {
  HttpHandlers handlers = answers_at_once();
  handlers.at_once = [](const HttpRequest&) { return std::nullopt; };
  handlers.compute = [=](const HttpRequest&, const std::stop_token&) {
    HttpResponse response;
    response.stream = stream;
    return response;
  };
  return handlers;
}

class Server {
 public:
  explicit Server(const HttpServerOptions& options, HttpHandlers handlers = answers_at_once())
      : server_(options, std::move(handlers)), thread_([this] { server_.run(stop_); }) {}
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
  // All until the server closes.
  std::string receive() const {
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = recv(descriptor_, buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<std::size_t>(size));
    return text;
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

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST(HttpServer, AStreamHasEachPieceAndAnEnd) {
  const Server server({}, streams([](const SendPiece& send, const std::stop_token&) {
                        for (const char* piece : {"one", "two", "three"}) {
                          send(piece);
                          std::this_thread::sleep_for(100ms);
                        }
                      }));
  const std::string answer = Client(server.port(), 1, kGet).receive();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"))
      << answer;
}

TEST(HttpServer, AStreamThatFailsIsCutOff) {
  const Server server({}, streams([](const SendPiece& send, const std::stop_token&) {
                        send("one");
                        throw std::runtime_error("no more");
                      }));
  const std::string answer = Client(server.port(), 1, kGet).receive();
  EXPECT_TRUE(answer.ends_with("\r\n\r\n3\r\none\r\n")) << answer;
}

// The computation is not held up by a client that does not read, and its connection is closed.
TEST(HttpServer, AStreamThatIsNotReadIsForgotten) {
  std::atomic<int> ended{0};
  const Server server({.max_connections_per_address = 1, .max_running = 1, .request_limit = 500ms},
                      streams([&](const SendPiece& send, const std::stop_token&) {
                        const std::string piece(1 << 20, 'x');
                        for (int i = 0; i < 64; ++i) send(piece);
                        ++ended;
                      }));
  const Client deaf(server.port(), 1, kGet);
  const Client other(server.port(), 2, kGet);
  EXPECT_TRUE(other.is_answered_within(10s));
  for (int i = 0; i < 200 && ended < 2; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_EQ(ended, 2);
  std::this_thread::sleep_for(1500ms);
  EXPECT_LT(deaf.receive().size(), std::size_t{64} << 20);
}

TEST(HttpServer, AClientThatGoesCancelsItsStream) {
  std::atomic<bool> cancelled{false};
  const Server server({.tick = 1ms},
                      streams([&](const SendPiece& send, const std::stop_token& stop) {
                        while (!stop.stop_requested()) {
                          send("more");
                          std::this_thread::sleep_for(5ms);
                        }
                        cancelled = true;
                        throw Interrupted("given up");
                      }));
  { EXPECT_TRUE(Client(server.port(), 1, kGet).is_answered_within(10s)); }
  for (int i = 0; i < 200 && !cancelled; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(cancelled);
}

}  // namespace
}  // namespace tandem::apps
