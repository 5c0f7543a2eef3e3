// A small HTTP/1.1 server over libmicrohttpd: what arrives is bounded in size, number and time, and
// what takes long is computed outside the thread that listens.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace tandem::apps {

struct HttpRequest {
  std::string method;
  std::string path;    // without the query
  std::string host;    // header Host, empty if absent
  std::string origin;  // header Origin, empty if absent
  std::string body;
};

// Sends a piece of a body.
using SendPiece = std::function<void(std::string_view piece)>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string allow;                 // header Allow; for 405
  unsigned retry_after_seconds = 0;  // header Retry-After; for 429 and 503
  // Not empty: the body is what this sends, each piece at once. Called after the head was sent, on
  // the thread of compute(), with its `cancelled`; an exception closes the connection before the
  // end of the body. For answers of compute().
  std::function<void(const SendPiece& send, const std::stop_token& cancelled)> stream = {};
};

struct HttpServerOptions {
  std::string address = "127.0.0.1";  // IPv4 or IPv6, as numbers
  std::uint16_t port = 0;             // 0: any free one
  bool both_families = false;         // "::" takes IPv4, too, all of it as one network
  std::size_t max_body_bytes = 1 << 20;
  unsigned max_connections = 64;
  unsigned max_connections_per_address = 32;  // IPv6: per network of 64 bits
  unsigned max_running = 32;                  // requests computed at once; others wait in a queue
  // From the start of a connection, or of a further request on it, to the end of the answer,
  // without the time in which the request waited and was computed.
  std::chrono::milliseconds request_limit{10000};
  // A connection stays open so long after an answer, for the next request; 0: it is closed.
  std::chrono::milliseconds idle_limit{0};
  std::chrono::milliseconds tick{50};  // how soon `stop`, a client that went and deadlines are seen
};

// Current load of a server.
struct HttpLoad {
  std::size_t connections = 0;
  std::size_t waiting = 0;  // requests in the queue
  std::size_t running = 0;  // requests that are computed
};

struct HttpHandlers {
  // An answer, or nothing: compute. Called on the thread of run(), so it must be quick.
  std::function<std::optional<HttpResponse>(const HttpRequest& request)> at_once;
  // Called on a thread of its own, several at once. `cancelled` is requested when the client has
  // gone or the server stops: then it throws Interrupted, and the server sends the reason. Any
  // other exception is answered with 500.
  std::function<HttpResponse(const HttpRequest& request, const std::stop_token& cancelled)> compute;
  // The form of an error that the server itself finds. Called on any thread.
  std::function<HttpResponse(const HttpRequest& request, int status, const std::string& message)>
      error;
  // Warns the operator, at most once a minute, that connections are not accepted because no
  // descriptor is left. Called on the thread of run(); may be empty.
  std::function<void(const std::string& message)> warn = {};
  // Called on the thread of run() for each answer to a request with readable headers, `seconds`
  // after these, a stream at its end; may be empty.
  std::function<void(const HttpRequest& request, int status, double seconds)> answered = {};
};

// Refused with 400: headers that two readers may understand in two ways (two of Host,
// Content-Length or Transfer-Encoding, a length that is not a number, a length together with a
// transfer coding, a malformed name); with 501 another transfer coding than chunked; with 413 a
// body over max_body_bytes. The connection is closed after each of these, because the beginning of
// the next request is unknown.
//
// At most max_running requests are computed at once. The others wait in a queue that is fair
// between addresses (fair_queue.h). As many requests wait and run as there may be connections; one
// more is refused, with 429 for its address and with 503 for all.
//
// A streamed body is part of the computation. When it is complete, the client has the time of
// request_limit to take the rest.
//
// A connection that is slower than request_limit is closed. So are, when an address or all together
// hold more than the limits, the connections that wait longest for their client: idle ones block no
// other. A client that closes its connection, or its own half of it, while an answer is computed
// has gone; one that still listens gets 400.
class HttpServer {
 public:
  // Listens at once. Throws ConfigError when the address is not one of this machine or the port is
  // taken.
  HttpServer(const HttpServerOptions& options, HttpHandlers handlers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  // Only on the thread of run(), for example in a handler.
  HttpLoad load() const;
  // How many descriptors a server opens at most.
  static std::size_t descriptors(const HttpServerOptions& options);
  // Serves until `stop` becomes true, which is seen within a tenth of a second: computations are
  // cancelled, and what they answer is sent.
  void run(const std::atomic<bool>& stop);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tandem::apps
