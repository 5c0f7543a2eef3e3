#include "apps/serve/http_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "apps/serve/body_stream.h"
#include "apps/serve/fair_queue.h"
#include "apps/serve/http_framing.h"
#include "tandem/core/error.h"
#include "tandem/core/interruption.h"

namespace tandem::apps {
namespace {

using Clock = std::chrono::steady_clock;

// A client that just connected gets this long to send its request, however many there are.
constexpr std::chrono::milliseconds kGrace{100};
constexpr std::chrono::milliseconds kLastAnswers{500};  // to send them, after `stop`
constexpr std::chrono::minutes kBetweenWarnings{1};
// Connections beyond the limit, so that a client gets the answer that there are too many.
constexpr unsigned kReserve = 16;
constexpr std::size_t kOfTheServer = 8;  // that listen and wait
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

// Identity of a client: an IPv4 address, also if it comes as ::ffff:a.b.c.d; the network of an IPv6
// address, since a host may use any address of it.
std::string address_key(const sockaddr* address) {
  const auto bytes = [](const void* data, std::size_t size) {
    return std::string(static_cast<const char*>(data), size);
  };
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET)
    return bytes(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  if (address->sa_family != AF_INET6) return "";
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return bytes(v6.s6_addr + 12, 4);
  return bytes(v6.s6_addr, 8);
}

std::string header(MHD_Connection* connection, const char* name) {
  const char* value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

MHD_Result add_to_framing(void* framing, MHD_ValueKind, const char* name, const char* value) {
  static_cast<Framing*>(framing)->add(name, value == nullptr ? "" : value);
  return MHD_YES;
}

// One request, from its headers to its answer.
struct Exchange {
  HttpRequest request;
  Clock::time_point began;  // its headers are there
  bool too_large = false;
  // While the request is computed:
  std::thread thread;
  std::stop_source cancelled;
  HttpResponse answer;               // written by the thread
  std::unique_ptr<BodyStream> body;  // of an answer that is streamed; made by the thread
  bool given_up = false;             // by the thread, because of `cancelled`
  bool deserted = false;             // the client has gone
};

// State of one connection from accept to close.
struct Connection {
  MHD_Connection* handle = nullptr;
  int descriptor = -1;
  std::string address;
  Clock::time_point deadline;
  Clock::time_point waiting_since;  // for its client
  Clock::time_point computing_since;
  Exchange* computing = nullptr;  // the client waits for us; in the queue, or by a thread
  bool running = false;           // by a thread
  bool streaming = false;         // the answer is being sent and computed
  bool answered = false;          // the whole answer is being sent
  bool idle = false;              // answered, and no further request has begun
  bool at_end = false;            // the client has closed its half, and everything is read
  bool closing = false;
};

// body: null, or the stream that replaces the answer's body.
MHD_Result send(MHD_Connection* connection, const HttpResponse& answer, BodyStream* body,
                bool close) {
  constexpr std::size_t kBlock = 16 << 10;
  MHD_Response* response =
      body == nullptr
          ? MHD_create_response_from_buffer(
                answer.body.size(), const_cast<char*>(answer.body.data()), MHD_RESPMEM_MUST_COPY)
          : MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kBlock, &BodyStream::read, body,
                                              nullptr);
  if (response == nullptr) return MHD_NO;
  const auto add = [&](const char* name, const std::string& value) {
    MHD_add_response_header(response, name, value.c_str());
  };
  add("Content-Type", answer.content_type);
  if (close) add("Connection", "close");
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  add("Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri "
      "'none'; "
      "form-action 'none'; frame-ancestors 'none'");
  if (!answer.allow.empty()) add("Allow", answer.allow);
  if (answer.retry_after_seconds > 0)
    add("Retry-After", std::to_string(answer.retry_after_seconds));
  const MHD_Result result =
      MHD_queue_response(connection, static_cast<unsigned>(answer.status), response);
  MHD_destroy_response(response);
  return result;
}

Connection& connection_of(MHD_Connection* connection) {
  return *static_cast<Connection*>(
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context);
}

}  // namespace

class HttpServer::Implementation {
 public:
  Implementation(const HttpServerOptions& options, HttpHandlers handlers)
      : options_(options), handlers_(std::move(handlers)), queue_(options.max_running) {
    const SocketAddress address = parse_address(options.address, options.port);
    errno = 0;
    daemon_ = MHD_start_daemon(
        MHD_USE_ERROR_LOG | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
            (address.is_v6() ? MHD_USE_IPv6 : 0) | (options.both_families ? MHD_USE_DUAL_STACK : 0),
        options.port, nullptr, nullptr, &Implementation::access, this, MHD_OPTION_EXTERNAL_LOGGER,
        &Implementation::warn_of_limit, this, MHD_OPTION_SOCK_ADDR, address.get(),
        MHD_OPTION_CONNECTION_LIMIT, options.max_connections + kReserve,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, kHeaderBytes, MHD_OPTION_STRICT_FOR_CLIENT, 0,
        MHD_OPTION_NOTIFY_CONNECTION, &Implementation::connection_changed, this,
        MHD_OPTION_NOTIFY_COMPLETED, &Implementation::completed, this, MHD_OPTION_URI_LOG_CALLBACK,
        &Implementation::begins, this, MHD_OPTION_END);
    if (daemon_ == nullptr) {
      ::close(wake_);
      raise<ConfigError>("cannot listen at {} port {}: {}; choose another --port (0: any free one)",
                         options.address, options.port,
                         errno != 0 ? std::strerror(errno) : "refused by the system");
    }
  }

  ~Implementation() {
    // libmicrohttpd wants no connection suspended at its end.
    while (cancel_all() > 0) wait_and_work(options_.tick);
    MHD_stop_daemon(daemon_);
    ::close(wake_);
  }

  std::uint16_t port() const {
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  }

  HttpLoad load() const {
    return {.connections = connections_.size(),
            .waiting = queue_.waiting(),
            .running = queue_.running()};
  }

  void run(const std::atomic<bool>& stop) {
    while (!stop.load(std::memory_order_relaxed)) {
      wait_and_work(options_.tick);
      close_deserted();
      close_overdue();
      close_beyond_limits();
    }
    send_last_answers();
  }

 private:
  static Implementation& self(void* pointer) { return *static_cast<Implementation*>(pointer); }

  // libmicrohttpd reports in no other way that accept() found no descriptor. Its other remarks are
  // about clients.
  static void warn_of_limit(void* pointer, const char* format, va_list) {
    if (std::string_view(format).find("resource limit") == std::string_view::npos) return;
    Implementation& server = self(pointer);
    const auto now = Clock::now();
    if (!server.handlers_.warn || now < server.next_warning_) return;
    server.next_warning_ = now + kBetweenWarnings;
    server.handlers_.warn(
        "no file descriptor is left for another connection, so clients wait until one is closed; "
        "'ulimit -n' and 'sysctl fs.file-nr' show the limits");
  }

  // libmicrohttpd's own wait is not woken when a thread resumes a connection.
  void wait_and_work(std::chrono::milliseconds limit) {
    MHD_UNSIGNED_LONG_LONG soon = 0;
    if (MHD_get_timeout(daemon_, &soon) == MHD_YES)
      limit = std::min(limit, std::chrono::milliseconds(soon));
    const int epoll = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    std::array<pollfd, 2> entries = {pollfd{.fd = epoll, .events = POLLIN, .revents = 0},
                                     pollfd{.fd = wake_, .events = POLLIN, .revents = 0}};
    poll(entries.data(), entries.size(), static_cast<int>(limit.count()));
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = read(wake_, &count, sizeof count);
    MHD_run(daemon_);
    settle_streams();
  }

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
  }

  static void connection_changed(void* pointer, MHD_Connection* connection, void** context,
                                 MHD_ConnectionNotificationCode code) {
    Implementation& server = self(pointer);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      const auto info = [&](MHD_ConnectionInfoType type) {
        return MHD_get_connection_info(connection, type);
      };
      const auto now = Clock::now();
      auto* state = new Connection;
      state->handle = connection;
      state->descriptor = info(MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
      state->address = address_key(info(MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
      state->waiting_since = now;
      state->deadline = now + server.options_.request_limit;
      server.connections_.insert(state);
      *context = state;
    } else {
      auto* state = static_cast<Connection*>(*context);
      server.connections_.erase(state);
      delete state;
      *context = nullptr;
    }
  }

  // A request line has arrived. The returned pointer is the context of its first access().
  static void* begins(void* pointer, const char*, MHD_Connection* connection) {
    Connection& state = connection_of(connection);
    if (std::exchange(state.idle, false)) {
      state.waiting_since = Clock::now();
      state.deadline = state.waiting_since + self(pointer).options_.request_limit;
    }
    return nullptr;
  }

  // The answer has been sent, or the connection has ended.
  static void completed(void* pointer, MHD_Connection* connection, void** context,
                        MHD_RequestTerminationCode) {
    Connection& state = connection_of(connection);
    Implementation& server = self(pointer);
    std::unique_ptr<Exchange> exchange(static_cast<Exchange*>(*context));
    *context = nullptr;
    if (exchange && exchange->thread.joinable()) {  // the client has gone
      exchange->cancelled.request_stop();
      exchange->thread.join();
      if (std::exchange(state.streaming, false)) server.report(*exchange, exchange->answer.status);
    }
    state.answered = false;
    server.release(state);
    if (server.options_.idle_limit.count() == 0) return;  // libmicrohttpd is closing it
    state.idle = true;
    state.waiting_since = Clock::now();
    state.deadline = state.waiting_since + server.options_.idle_limit;
  }

  // libmicrohttpd calls this with the headers (*context is null), with each piece of the body, at
  // its end (size 0), and again when the computation has resumed the connection.
  static MHD_Result access(void* pointer, MHD_Connection* connection, const char* path,
                           const char* method, const char*, const char* piece, std::size_t* size,
                           void** context) {
    Implementation& server = self(pointer);
    auto* exchange = static_cast<Exchange*>(*context);
    if (exchange == nullptr) {
      exchange = new Exchange;
      exchange->request = {.method = method,
                           .path = path,
                           .host = header(connection, "Host"),
                           .origin = header(connection, "Origin"),
                           .body = ""};
      exchange->began = Clock::now();
      *context = exchange;
      return server.check_headers(connection, *exchange);
    }
    if (*size > 0) {
      server.add_to_body({piece, *size}, *exchange);
      *size = 0;
      return MHD_YES;
    }
    return server.answer(connection, *exchange);
  }

  // A request that must be refused is refused before its body is sent (and before "100 Continue").
  MHD_Result check_headers(MHD_Connection* connection, const Exchange& exchange) const {
    Framing framing;
    MHD_get_connection_values(connection, MHD_HEADER_KIND, &add_to_framing, &framing);
    const auto refused = framing.refusal(options_.max_body_bytes);
    if (!refused) return MHD_YES;
    const bool large = refused->status == 413;
    return finish(connection, exchange,
                  large ? too_large(exchange)
                        : handlers_.error(exchange.request, refused->status, refused->message),
                  /*close=*/true);
  }

  void add_to_body(std::string_view piece, Exchange& exchange) const {
    if (exchange.request.body.size() + piece.size() > options_.max_body_bytes) {
      exchange.too_large = true;  // the rest is read and dropped, until the deadline
      exchange.request.body.clear();
    }
    if (!exchange.too_large) exchange.request.body.append(piece);
  }

  MHD_Result answer(MHD_Connection* connection, Exchange& exchange) {
    Connection& state = connection_of(connection);
    if (state.computing != nullptr) return finish_computed(connection, state);
    if (exchange.too_large)
      return finish(connection, exchange, too_large(exchange), /*close=*/true);
    if (const auto response = handlers_.at_once(exchange.request))
      return finish(connection, exchange, *response);
    if (const auto response = too_many(state, exchange))
      return finish(connection, exchange, *response);
    return enqueue(connection, state, exchange);
  }

  HttpResponse too_large(const Exchange& exchange) const {
    return handlers_.error(exchange.request, 413,
                           fmt::format("the request is larger than {} bytes; ask about a shorter "
                                       "text",
                                       options_.max_body_bytes));
  }

  std::optional<HttpResponse> too_many(const Connection& asking, const Exchange& exchange) const {
    std::size_t all = 0, of_address = 0;
    for (const Connection* other : connections_) {
      if (other->computing == nullptr) continue;
      ++all;
      of_address += other->address == asking.address;
    }
    std::optional<HttpResponse> response;
    if (of_address >= options_.max_connections_per_address) {
      response = handlers_.error(exchange.request, 429,
                                 fmt::format("{} requests from this address are being "
                                             "answered; wait for one of them",
                                             of_address));
    } else if (all >= options_.max_connections) {
      response = handlers_.error(exchange.request, 503,
                                 fmt::format("{} requests are being answered; try again "
                                             "later",
                                             all));
    }
    if (response) response->retry_after_seconds = 1;
    return response;
  }

  MHD_Result finish(MHD_Connection* connection, const Exchange& exchange,
                    const HttpResponse& response, bool close = false) const {
    connection_of(connection).answered = true;
    report(exchange, response.status);
    return send(connection, response, nullptr, close || options_.idle_limit.count() == 0);
  }

  void report(const Exchange& exchange, int status) const {
    if (!handlers_.answered) return;
    const std::chrono::duration<double> seconds = Clock::now() - exchange.began;
    handlers_.answered(exchange.request, status, seconds.count());
  }

  // The connection rests until it is resumed; access() is then called once more.
  MHD_Result enqueue(MHD_Connection* connection, Connection& state, Exchange& exchange) {
    state.computing = &exchange;
    state.computing_since = Clock::now();
    MHD_suspend_connection(connection);
    queue_.push(state.address, &state);
    start_next();
    return MHD_YES;
  }

  void start_next() {
    while (const auto next = queue_.start_next()) start(**next);
  }

  void start(Connection& state) {
    Exchange& exchange = *state.computing;
    state.running = true;
    try {
      exchange.thread = std::thread([this, connection = state.handle, &exchange] {
        compute(exchange);
        const auto stream = std::exchange(exchange.answer.stream, nullptr);
        if (stream) exchange.body = std::make_unique<BodyStream>(connection, [this] { wake(); });
        MHD_resume_connection(connection);
        wake();
        if (stream) fill(*exchange.body, stream, exchange.cancelled.get_token());
      });
    } catch (const std::system_error&) {
      exchange.answer =
          handlers_.error(exchange.request, 503, "no thread is left; try again later");
      resume(state);
    }
  }

  void resume(const Connection& state) const {
    MHD_resume_connection(state.handle);
    wake();
  }

  void compute(Exchange& exchange) const {
    try {
      exchange.answer = handlers_.compute(exchange.request, exchange.cancelled.get_token());
    } catch (const Interrupted&) {
      exchange.given_up = true;
    } catch (const std::exception& failure) {
      exchange.answer = handlers_.error(exchange.request, 500, failure.what());
    }
  }

  template <class Stream>
  static void fill(BodyStream& body, const Stream& stream, const std::stop_token& cancelled) {
    try {
      stream([&](std::string_view piece) { body.write(piece); }, cancelled);
      body.finish(/*whole=*/true);
    } catch (const std::exception&) {
      body.finish(/*whole=*/false);
    }
  }

  HttpResponse why_given_up(const Exchange& exchange) const {
    if (!exchange.deserted) return handlers_.error(exchange.request, 503, "the server is stopping");
    return handlers_.error(exchange.request, 400,
                           "the client closed its side of the connection before the answer was "
                           "there, so the question was given up; keep it open until the answer "
                           "has come");
  }

  MHD_Result finish_computed(MHD_Connection* connection, Connection& state) {
    Exchange& exchange = *state.computing;
    if (exchange.body) {
      state.streaming = true;
      return send(connection, exchange.answer, exchange.body.get(),
                  options_.idle_limit.count() == 0);
    }
    end_computing(state);
    return finish(connection, exchange,
                  exchange.given_up ? why_given_up(exchange) : exchange.answer);
  }

  void end_computing(Connection& state) {
    if (state.computing->thread.joinable()) state.computing->thread.join();
    const auto now = Clock::now();
    state.waiting_since = now;
    state.deadline += now - state.computing_since;
    release(state);
  }

  // Streams that are complete, though perhaps not sent.
  void settle_streams() {
    for (Connection* connection : connections_) {
      if (!connection->streaming || !connection->computing->body->finished()) continue;
      const Exchange& exchange = *connection->computing;
      end_computing(*connection);
      connection->streaming = false;
      connection->answered = true;
      report(exchange, exchange.answer.status);
    }
  }

  // The request, if there is one, is no longer computed.
  void release(Connection& state) {
    state.computing = nullptr;
    if (!std::exchange(state.running, false)) return;
    queue_.finished(state.address);
    start_next();
  }

  // The client needs no answer any more: the thread stops, or the request leaves the queue.
  void give_up(Connection& state) {
    state.computing->cancelled.request_stop();
    if (!queue_.remove(state.address, &state)) return;
    state.computing->given_up = true;
    resume(state);
  }

  // Clients that have closed their connection, or their half of it: their requests are not
  // computed, and an incomplete request will never be complete. (libmicrohttpd misses the second
  // when the end comes with the last bytes.)
  void close_deserted() {
    std::vector<pollfd> entries;
    std::vector<Connection*> connections;
    for (Connection* connection : connections_) {
      if (connection->answered || connection->closing) continue;
      entries.push_back({.fd = connection->descriptor, .events = POLLRDHUP, .revents = 0});
      connections.push_back(connection);
    }
    if (entries.empty() || poll(entries.data(), entries.size(), 0) <= 0) return;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents != 0) desert(*connections[i]);
    }
  }

  void desert(Connection& connection) {
    if (connection.computing != nullptr) {
      connection.computing->deserted = true;
      give_up(connection);
      return;
    }
    // All is read, also by libmicrohttpd, which had its turn since this was seen first.
    char byte = 0;
    const bool at_end = recv(connection.descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
    if (at_end && connection.at_end) close(connection);
    connection.at_end = at_end;
  }

  // libmicrohttpd then sees the end of the connection and forgets it, except for one whose trailers
  // end with the last byte of its memory: it would never read or close that one.
  static void close(Connection& connection) {
    shutdown(connection.descriptor, SHUT_RDWR);
    MHD_set_connection_option(connection.handle, MHD_CONNECTION_OPTION_TIMEOUT, 1U);
    connection.closing = true;
  }

  // Closes overdue connections. libmicrohttpd's own time-out restarts with every byte, so that one
  // byte per second would hold a connection forever.
  void close_overdue() {
    const auto now = Clock::now();
    for (Connection* connection : connections_) {
      if (connection->closing || connection->computing != nullptr) continue;
      if (now > connection->deadline) close(*connection);
    }
  }

  // The connections of one address, then of all, from the one that waits longest for its client.
  void close_beyond_limits() {
    std::map<std::string, std::size_t> of_address;
    std::size_t all = 0;
    std::vector<Connection*> waiting;
    for (Connection* connection : connections_) {
      if (connection->closing) continue;
      ++all;
      ++of_address[connection->address];
      if (connection->computing == nullptr) waiting.push_back(connection);
    }
    std::sort(waiting.begin(), waiting.end(), [](const Connection* a, const Connection* b) {
      return a->waiting_since < b->waiting_since;
    });
    const auto patient_until = Clock::now() - kGrace;
    for (const bool by_address : {true, false}) {
      for (Connection* connection : waiting) {
        if (connection->closing || connection->waiting_since > patient_until) continue;
        std::size_t& held = of_address[connection->address];
        if (by_address ? held <= options_.max_connections_per_address
                       : all <= options_.max_connections)
          continue;
        close(*connection);
        --held;
        --all;
      }
    }
  }

  // How many are still computed.
  std::size_t cancel_all() {
    std::size_t count = 0;
    for (Connection* connection : connections_) {
      if (connection->computing == nullptr) continue;
      give_up(*connection);
      ++count;
    }
    return count;
  }

  // New connections are not accepted. Clients that have not sent a whole request by now are
  // dropped.
  void send_last_answers() {
    const MHD_socket listening = MHD_quiesce_daemon(daemon_);
    if (listening != MHD_INVALID_SOCKET) ::close(listening);
    const auto deadline = Clock::now() + kLastAnswers;
    while (Clock::now() < deadline) {
      const std::size_t computing = cancel_all();
      const bool sending =
          std::any_of(connections_.begin(), connections_.end(),
                      [](const Connection* connection) { return connection->answered; });
      if (computing == 0 && !sending) return;
      wait_and_work(std::chrono::milliseconds(10));
    }
  }

  HttpServerOptions options_;
  HttpHandlers handlers_;
  std::set<Connection*> connections_;
  FairQueue<Connection*> queue_;
  MHD_Daemon* daemon_ = nullptr;
  Clock::time_point next_warning_;                           // not before it
  const int wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);  // written when an answer is there
};

HttpServer::HttpServer(const HttpServerOptions& options, HttpHandlers handlers)
    : implementation_(std::make_unique<Implementation>(options, std::move(handlers))) {}
HttpServer::~HttpServer() = default;
std::size_t HttpServer::descriptors(const HttpServerOptions& options) {
  return options.max_connections + kReserve + kOfTheServer;
}
std::uint16_t HttpServer::port() const { return implementation_->port(); }
HttpLoad HttpServer::load() const { return implementation_->load(); }
void HttpServer::run(const std::atomic<bool>& stop) { implementation_->run(stop); }

}  // namespace tandem::apps
