// Answers of `tandem serve`: the page, and the endpoints of a model in the form of Hugging Face's
// inference API. Knows nothing of sockets, nor what the model does.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/serve/http_server.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::apps {

// A failure with a status of its own. Other errors of an endpoint have the status 400.
class StatusError : public Error {
 public:
  StatusError(int status, const std::string& message) : Error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// HttpResponse::stream
using StreamBody = std::function<void(const SendPiece& send, const std::stop_token& cancelled)>;

// A path of its own, with requests and answers of another form than the inference API's.
struct Route {
  std::string path;     // "/v1/embeddings"
  std::string key;      // key of the body, which must have it
  std::string example;  // a request's body, for messages
  // As Endpoint::answer.
  std::function<nlohmann::ordered_json(const nlohmann::json& request,
                                       const std::stop_token& cancelled)>
      answer;
  // The body of an error; empty: {"error": message}.
  std::function<nlohmann::ordered_json(int status, const std::string& message)> error = {};
  // The server-sent events for a request that asks for a stream; empty, or an empty result:
  // answer() answers it. Throws as answer().
  std::function<StreamBody(const nlohmann::json& request)> stream = {};
};

// An endpoint of a model.
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
  std::vector<Route> routes = {};                                // in addition to POST /
  std::map<std::string, nlohmann::ordered_json> documents = {};  // for GET, by path
};

struct ServiceOptions {
  std::string model;  // shown on the page
  std::size_t num_parameters = 0;
  // Requests must name this server as localhost or a loopback address; if false, also as any other
  // address (in numbers).
  bool loopback_only = true;
  std::vector<std::string> allowed_hosts;  // names it has in addition to these; "*": any
  std::size_t max_values = 10000;          // JSON values and names of one request
  std::size_t max_depth = 32;              // depth of JSON
  // The text of GET /metrics, which is 404 without it.
  std::function<std::string()> metrics = {};
};

// GET / and its parts; GET /health, /info, /metrics and documents of the endpoint; POST / or
// /models/<any name>: the endpoint's, and POST to the paths of its routes. Errors are
// {"error": "what was found, what was expected"} with a fitting status, where a route has no
// form of its own. Thread-safe.
class InferenceService {
 public:
  InferenceService(ServiceOptions options, Endpoint endpoint);
  // Everything but the endpoint's work, and refusals; nothing: handle() has to compute.
  std::optional<HttpResponse> handle_at_once(const HttpRequest& request) const;
  // Throws Interrupted soon after `cancelled` was requested.
  HttpResponse handle(const HttpRequest& request, const std::stop_token& cancelled = {}) const;
  // In the form of the request's path.
  HttpResponse error(const HttpRequest& request, int status, const std::string& message) const;

 private:
  const Route* route_of(const std::string& path) const;
  HttpResponse compute(const HttpRequest& request, const std::stop_token& cancelled) const;
  std::optional<HttpResponse> refuse_unauthenticated_peer(const HttpRequest& request) const;
  bool is_allowed(const std::string& host) const;
  HttpResponse get(const HttpRequest& request) const;

  ServiceOptions options_;
  Endpoint endpoint_;
};

}  // namespace tandem::apps
