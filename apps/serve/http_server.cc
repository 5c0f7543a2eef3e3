#include "apps/serve/http_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};  // how soon `stop` and deadlines are seen
constexpr std::size_t kHeaderBytes =
    32 << 10;  // request line, headers and libmicrohttpd's own buffers of a connection

// An address as sockets want it.
struct SocketAddress {
  sockaddr_storage storage{};
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  bool is_v6() const { return storage.ss_family == AF_INET6; }
};

SocketAddress parse_address(const std::string& text, std::uint16_t port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
  } else {
    raise<ConfigError>(
        "'{}' is not an address; expected one of this machine as numbers, for example 127.0.0.1, "
        "0.0.0.0 (all interfaces) or ::1",
        text);
  }
  return address;
}

std::string header(MHD_Connection* connection, const char* name) {
  const char* value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

// What belongs to one connection from accept to close.
struct Connection {
  int descriptor = -1;
  Clock::time_point deadline;
};

// One request while its body arrives.
struct Exchange {
  HttpRequest request;
  bool too_large = false;
};

MHD_Result send(MHD_Connection* connection, const HttpResponse& answer) {
  MHD_Response* response = MHD_create_response_from_buffer(
      answer.body.size(), const_cast<char*>(answer.body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  const auto add = [&](const char* name, const std::string& value) {
    MHD_add_response_header(response, name, value.c_str());
  };
  add("Content-Type", answer.content_type);
  add("Connection", "close");
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  add("Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri "
      "'none'; "
      "form-action 'none'; frame-ancestors 'none'");
  if (!answer.allow.empty()) add("Allow", answer.allow);
  const MHD_Result result =
      MHD_queue_response(connection, static_cast<unsigned>(answer.status), response);
  MHD_destroy_response(response);
  return result;
}

}  // namespace

class HttpServer::Implementation {
 public:
  Implementation(const HttpServerOptions& options, Handler handler,
                 std::function<HttpResponse(std::size_t)> too_large)
      : options_(options), handler_(std::move(handler)), too_large_(std::move(too_large)) {
    const SocketAddress address = parse_address(options.address, options.port);
    errno = 0;
    daemon_ = MHD_start_daemon(
        MHD_USE_EPOLL | (address.is_v6() ? MHD_USE_IPv6 : 0), options.port, nullptr, nullptr,
        &Implementation::access, this, MHD_OPTION_SOCK_ADDR, address.get(),
        MHD_OPTION_CONNECTION_LIMIT, options.max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        kHeaderBytes, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
        &Implementation::connection_changed, this, MHD_OPTION_NOTIFY_COMPLETED,
        &Implementation::completed, this, MHD_OPTION_END);
    if (daemon_ == nullptr) {
      raise<ConfigError>("cannot listen at {} port {}: {}; choose another --port (0: any free one)",
                         options.address, options.port,
                         errno != 0 ? std::strerror(errno) : "refused by the system");
    }
  }
  ~Implementation() { MHD_stop_daemon(daemon_); }

  std::uint16_t port() const {
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  }

  void run(const std::atomic<bool>& stop) {
    while (!stop.load(std::memory_order_relaxed)) {
      MHD_run_wait(daemon_, static_cast<int>(kTick.count()));
      close_overdue();
    }
  }

 private:
  static Implementation& self(void* pointer) { return *static_cast<Implementation*>(pointer); }

  static void connection_changed(void* pointer, MHD_Connection* connection, void** context,
                                 MHD_ConnectionNotificationCode code) {
    Implementation& server = self(pointer);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      auto* state = new Connection{
          .descriptor =
              MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
          .deadline = Clock::now() + server.options_.request_limit};
      server.connections_.insert(state);
      *context = state;
    } else {
      auto* state = static_cast<Connection*>(*context);
      server.connections_.erase(state);
      delete state;
      *context = nullptr;
    }
  }

  static void completed(void*, MHD_Connection*, void** context, MHD_RequestTerminationCode) {
    delete static_cast<Exchange*>(*context);
    *context = nullptr;
  }

  // libmicrohttpd calls this with the headers (*context is null), with each piece of the body, and at its end (size 0).
  static MHD_Result access(void* pointer, MHD_Connection* connection, const char* path,
                           const char* method, const char*, const char* piece, std::size_t* size,
                           void** context) {
    Implementation& server = self(pointer);
    const std::size_t limit = server.options_.max_body_bytes;
    auto* exchange = static_cast<Exchange*>(*context);
    if (exchange == nullptr) {
      exchange = new Exchange{.request = {.method = method,
                                          .path = path,
                                          .host = header(connection, "Host"),
                                          .origin = header(connection, "Origin"),
                                          .body = ""}};
      *context = exchange;
      // A body that says it is too large is refused before it is sent (and before "100 Continue").
      const std::string length = header(connection, "Content-Length");
      if (std::strtoull(length.c_str(), nullptr, 10) > limit)
        return send(connection, server.too_large_(limit));
      return MHD_YES;
    }
    if (*size > 0) {
      if (exchange->request.body.size() + *size > limit) {
        exchange->too_large = true;  // the rest is read and dropped, until the deadline
      } else {
        exchange->request.body.append(piece, *size);
      }
      *size = 0;
      return MHD_YES;
    }
    return send(connection,
                exchange->too_large ? server.too_large_(limit) : server.answer(exchange->request));
  }

  HttpResponse answer(const HttpRequest& request) {
    const auto start = Clock::now();
    HttpResponse response = handler_(request);
    const auto busy = Clock::now() - start;
    for (Connection* connection : connections_) connection->deadline += busy;
    return response;
  }

  // Whoever is late loses the connection; libmicrohttpd then sees its end and forgets it. Its own time-out starts anew with every
  // byte, so that a byte a second would hold a connection for ever.
  void close_overdue() {
    const auto now = Clock::now();
    for (Connection* connection : connections_) {
      if (now > connection->deadline) shutdown(connection->descriptor, SHUT_RDWR);
    }
  }

  HttpServerOptions options_;
  Handler handler_;
  std::function<HttpResponse(std::size_t)> too_large_;
  std::set<Connection*> connections_;
  MHD_Daemon* daemon_ = nullptr;
};

HttpServer::HttpServer(const HttpServerOptions& options, Handler handler,
                       std::function<HttpResponse(std::size_t)> too_large)
    : implementation_(
          std::make_unique<Implementation>(options, std::move(handler), std::move(too_large))) {}
HttpServer::~HttpServer() = default;
std::uint16_t HttpServer::port() const { return implementation_->port(); }
void HttpServer::run(const std::atomic<bool>& stop) { implementation_->run(stop); }

}  // namespace tandem::apps
