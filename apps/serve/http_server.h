// A small HTTP/1.1 server over libmicrohttpd for one handler: what arrives is bounded in size, number and time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tandem::apps {

struct HttpRequest {
  std::string method;
  std::string path;    // without the query
  std::string host;    // header Host, empty if absent
  std::string origin;  // header Origin, empty if absent
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string allow;  // header Allow; for 405
};

struct HttpServerOptions {
  std::string address = "127.0.0.1";  // IPv4 or IPv6, as numbers
  std::uint16_t port = 0;             // 0: any free one
  std::size_t max_body_bytes = 1 << 20;
  unsigned max_connections = 64;  // more wait in the kernel's queue
  // From the first byte of a connection to the end of its answer, without the time in which the handler computed (for whomever).
  std::chrono::milliseconds request_limit{10000};
};

// Everything happens on the thread that calls run(): the handler too, so it need not be thread-safe, and what it computes delays the
// other connections but not their deadlines. One request per connection. A connection that is slower than request_limit is closed.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens at once. Throws ConfigError when the address is not one of this machine or the port is taken.
  // too_large(limit) is the answer (413) to a body over max_body_bytes.
  HttpServer(const HttpServerOptions& options, Handler handler,
             std::function<HttpResponse(std::size_t limit)> too_large);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  // Serves until `stop` becomes true, which is seen within a tenth of a second; a request that is being answered is answered.
  void run(const std::atomic<bool>& stop);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tandem::apps
