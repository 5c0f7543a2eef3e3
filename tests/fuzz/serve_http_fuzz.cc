// Bytes that an unauthenticated peer sends to the port of `tandem serve`, from the first byte to
// the end of the connection. Every connection ends soon, holds one request at most, and gets one
// whole answer or none. Accepted input is not ambiguous.
//
// An input is the bytes that a client sends, in two pieces, before it closes its half of the
// connection.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "apps/serve/http_server.h"
#include "apps/serve/question_endpoint.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "support/unauthenticated_peer.h"

namespace {

using namespace tandem;
using namespace std::chrono_literals;

// The server, with answers that need no model.
class Target {
 public:
  Target()
      : service_({.model = "none", .num_parameters = 1, .allowed_hosts = {}},
                 apps::question_endpoint(
                     {}, /*max_questions=*/32,
                     [](std::span<const apps::Question> questions, const apps::AnswerOptions&,
                        const std::stop_token&) {
                       return std::vector<std::vector<apps::Answer>>(
                           questions.size(),
                           {{.text = "a", .probability = 1, .span = apps::AnswerSpan{0, 1}}});
                     })),
        server_(
            {.max_body_bytes = 4096, .request_limit = 1s, .tick = 1ms},
            {.at_once =
                 [this](const apps::HttpRequest& request) {
                   ++requests_;
                   return service_.handle_at_once(request);
                 },
             .compute =
                 [this](const apps::HttpRequest& request, const std::stop_token& cancelled) {
                   return service_.handle(request, cancelled);
                 },
             .error =
                 [this](const apps::HttpRequest& request, int status, const std::string& message) {
                   return service_.error(request, status, message);
                 }}),
        thread_([this] { server_.run(stop_); }) {}
  ~Target() {
    stop_ = true;
    thread_.join();
  }

  std::uint16_t port() const { return server_.port(); }
  int requests() const { return requests_; }

 private:
  apps::InferenceService service_;
  std::atomic<bool> stop_{false};
  std::atomic<int> requests_{0};
  apps::HttpServer server_;
  std::thread thread_;
};

// Clients come from many addresses, so that closed connections do not use up the ports of one.
std::uint32_t next_address() {
  static std::uint32_t client = 0;
  client = (client + 1) % 50000;
  return 0x7f010101 + client;  // 127.1.1.1 and on
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
    // An answer of libmicrohttpd itself: version 0.9.75 sends the headers of such answers twice.
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
  // A body has max_body_bytes at most (4 KB here); a connection has a pool of its own.
  const fuzz::MemoryLimit limit(16 * size + (std::size_t{512} << 10));
  const int before = target.requests();
  const int descriptor = testing::connect_to_port(target.port(), next_address());
  fuzz::require(descriptor >= 0);
  testing::send_bytes(descriptor, input.substr(0, size / 2));
  testing::send_bytes(descriptor, input.substr(size / 2));
  shutdown(descriptor, SHUT_WR);
  const testing::ReceivedBytes received = testing::receive_bytes(descriptor, fuzz::kTimeout);
  close(descriptor);
  fuzz::require(received.ended);
  fuzz::require(target.requests() - before <= 1);
  if (!received.reset) check_answer(received.bytes, input.find("HEAD") != std::string_view::npos);
  return 0;
}
