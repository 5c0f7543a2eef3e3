// What a stranger sends to the port of `tandem serve`, from the first byte to the end of the
// connection: every connection ends soon, holds one request at most, gets one whole answer or none,
// and what is accepted is not ambiguous.
//
// An input is the bytes that a client sends, in two pieces, before it closes its half of the
// connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "apps/serve/http_server.h"
#include "apps/serve/question_service.h"
#include "fuzz/require.h"

namespace {

using namespace tandem;
using namespace std::chrono_literals;

// The server, with answers that need no model.
class Target {
 public:
  Target()
      : service_({.model = "none", .num_parameters = 1, .answer = {}, .allowed_hosts = {}},
                 [](std::span<const apps::Question> questions, const apps::AnswerOptions&,
                    const std::stop_token&) {
                   return std::vector<std::vector<apps::Answer>>(
                       questions.size(),
                       {{.text = "a", .probability = 1, .span = apps::AnswerSpan{0, 1}}});
                 }),
        server_({.max_body_bytes = 4096, .request_limit = 1s, .tick = 1ms},
                {.at_once =
                     [this](const apps::HttpRequest& request) {
                       ++requests_;
                       return service_.handle_at_once(request);
                     },
                 .compute =
                     [this](const apps::HttpRequest& request, const std::stop_token& cancelled) {
                       return service_.handle(request, cancelled);
                     },
                 .error = &apps::QuestionService::error}),
        thread_([this] { server_.run(stop_); }) {}
  ~Target() {
    stop_ = true;
    thread_.join();
  }

  std::uint16_t port() const { return server_.port(); }
  int requests() const { return requests_; }

 private:
  apps::QuestionService service_;
  std::atomic<bool> stop_{false};
  std::atomic<int> requests_{0};
  apps::HttpServer server_;
  std::thread thread_;
};

// Clients come from many addresses, so that closed connections do not use up the ports of one.
int connect_to(std::uint16_t port) {
  static std::uint32_t client = 0;
  client = (client + 1) % 50000;
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(0x7f010101 + client);  // 127.1.1.1 and on
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  const int one = 1;
  setsockopt(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fuzz::require(bind(descriptor, reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
  fuzz::require(connect(descriptor, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  return descriptor;
}

void send_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // refused in the middle
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

struct Received {
  std::string bytes;
  bool reset = false;  // the server closed with bytes unread: the end of its answer may be lost
};

Received receive_all(int descriptor) {
  Received received;
  const auto deadline = std::chrono::steady_clock::now() + 8s;
  for (std::array<char, 4096> buffer;;) {
    pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    fuzz::require(left.count() > 0 && poll(&entry, 1, static_cast<int>(left.count())) > 0);
    const ssize_t size = recv(descriptor, buffer.data(), buffer.size(), 0);
    received.reset = size < 0;
    if (size <= 0) return received;
    received.bytes.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

void check_answer(std::string_view answer, bool head) {
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  if (answer.starts_with(kContinue)) answer.remove_prefix(kContinue.size());
  if (answer.empty()) return;
  fuzz::require(answer.starts_with("HTTP/1.1 ") || answer.starts_with("HTTP/1.0 "));
  const std::size_t end = answer.find("\r\n\r\n");
  fuzz::require(end != std::string_view::npos);
  const std::string_view headers = answer.substr(0, end);
  if (count(headers, "\r\nContent-Security-Policy: ") == 0) {
    // Of libmicrohttpd itself, of which 0.9.75 sends the headers of such answers twice.
    fuzz::require(headers[9] == '4' || headers[9] == '5');
    return;
  }
  constexpr std::string_view kLength = "\r\nContent-Length: ";
  fuzz::require(count(headers, kLength) == 1);
  const std::string length(headers.substr(headers.find(kLength) + kLength.size(), 10));
  if (!head) fuzz::require(answer.size() - end - 4 == std::strtoull(length.c_str(), nullptr, 10));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Target target;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const int before = target.requests();
  const int descriptor = connect_to(target.port());
  send_all(descriptor, input.substr(0, size / 2));
  send_all(descriptor, input.substr(size / 2));
  shutdown(descriptor, SHUT_WR);
  const Received received = receive_all(descriptor);
  close(descriptor);
  fuzz::require(target.requests() - before <= 1);
  if (!received.reset) check_answer(received.bytes, input.find("HEAD") != std::string_view::npos);
  return 0;
}
