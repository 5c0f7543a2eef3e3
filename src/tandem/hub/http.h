// One HTTP request with libcurl: no redirect is followed, nothing waits without a deadline, and
// proxies and certificates are those of the Environment.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/hub/http_headers.h"

namespace tandem::hub {

struct HttpOptions {
  std::chrono::milliseconds connect_timeout{10'000};
  // A transfer slower than min_bytes_per_second for so long (whole seconds) is given up.
  std::chrono::seconds stall_timeout{10};
  long min_bytes_per_second = 1024;
  std::string proxy_for_http;  // empty: none
  std::string proxy_for_https;
  std::string no_proxy;                        // hosts, separated by commas
  std::string ca_bundle;                       // file of certificates; empty: libcurl's default
  std::string client_certificate, client_key;  // files of the client; empty: none
};

// Timeouts are HF_HUB_DOWNLOAD_TIMEOUT; http_proxy, https_proxy, all_proxy and no_proxy in either
// case; REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE, else the system's certificates.
HttpOptions http_options(const Environment& environment);

struct HttpRequest {
  std::string url;  // http or https
  bool head = false;
  std::optional<std::string> post;             // sent as the body of a POST
  std::vector<std::string> headers;            // "Name: value"
  std::chrono::milliseconds total_timeout{0};  // 0: only the stall counts
  // Receives the body of an answer with a status 2xx piece by piece; false ends the transfer.
  // Without it such a body is kept in HttpAnswer::body, up to max_body bytes.
  std::function<bool(const HttpHeaders&, std::span<const std::byte>)> sink;
  std::size_t max_body = 1 << 20;
  // Called now and then while waiting.
  std::function<void()> tick;
};

struct HttpAnswer {
  HttpHeaders headers;
  std::string body;          // body of any other status; cut at max_body
  std::string problem;       // empty: the answer is complete; else what broke, in words
  bool unreachable = false;  // the problem: no such host, or no server listens there
  bool permanent = false;    // the problem: certificates or the address, so a retry fails too
  bool stopped = false;      // by the sink
};

// Never throws for what the network does: that is `problem`. Thread-safe.
HttpAnswer perform(const HttpRequest& request, const HttpOptions& options);

}  // namespace tandem::hub
