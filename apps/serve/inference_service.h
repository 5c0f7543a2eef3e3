// What `tandem serve` answers to a request: the page, and what a model is for, in the form of
// Hugging Face's inference API. Knows nothing of sockets, nor what the model does.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/serve/http_server.h"
#include "tandem/core/json.h"

namespace tandem::apps {

// What a model does for a request.
struct Endpoint {
  std::string task;     // as the Hub calls it: "question-answering"
  std::string example;  // a request's body, for messages
  // A body without "inputs" that has this key is an input itself. Empty: no such form.
  std::string bare_input_key = {};
  nlohmann::ordered_json info;  // for GET /info and the page
  // The result for a body that has "inputs". Throws tandem::Error, and Interrupted when it was
  // given up: `cancelled` also is the calling thread's CancellationScope. Called by several threads
  // at once.
  std::function<nlohmann::ordered_json(const nlohmann::json& request,
                                       const std::stop_token& cancelled)>
      answer;
};

struct ServiceOptions {
  std::string model;  // shown on the page
  std::size_t num_parameters = 0;
  // Requests must name this server as localhost or a loopback address; if false, also as any other
  // address (in numbers).
  bool loopback_only = true;
  std::vector<std::string> allowed_hosts;  // names it has beside these; "*": any
  std::size_t max_values = 10000;          // JSON values and names of one request
  std::size_t max_depth = 32;              // of JSON
  // The text of GET /metrics, which is 404 without it.
  std::function<std::string()> metrics = {};
};

// GET / and its parts; GET /health, /info and /metrics; POST / or /models/<any name>: the
// endpoint's.
// Errors are {"error": "what was found, what was expected"} with a fitting status. Thread-safe.
class InferenceService {
 public:
  InferenceService(ServiceOptions options, Endpoint endpoint);
  // Everything but the endpoint's work, and refusals; nothing: handle() has to compute.
  std::optional<HttpResponse> handle_at_once(const HttpRequest& request) const;
  // Throws Interrupted soon after `cancelled` was requested.
  HttpResponse handle(const HttpRequest& request, const std::stop_token& cancelled = {}) const;
  static HttpResponse error(int status, const std::string& message);

 private:
  std::optional<HttpResponse> refuse_stranger(const HttpRequest& request) const;
  bool is_allowed(const std::string& host) const;
  HttpResponse get(const std::string& path) const;

  ServiceOptions options_;
  Endpoint endpoint_;
};

}  // namespace tandem::apps
