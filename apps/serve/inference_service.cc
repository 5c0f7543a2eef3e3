#include "apps/serve/inference_service.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "pages.h"
#include "tandem/core/ascii.h"
#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

HttpResponse json_response(const ordered_json& value, int status = 200) {
  return {.status = status,
          .content_type = "application/json",
          .body = python_json(value),
          .allow = "",
          .retry_after_seconds = 0};
}

HttpResponse page(std::string_view type, std::string_view content) {
  return {.status = 200,
          .content_type = fmt::format("{}; charset=utf-8", type),
          .body = std::string(content),
          .allow = "",
          .retry_after_seconds = 0};
}

// --- the host that a request names ---

bool is_address(int family, const std::string& text) {
  in6_addr address;
  return inet_pton(family, text.c_str(), &address) == 1;
}

// "Node7:8080" → "node7", "[::1]:8080" → "::1"; nothing when the header has another form (RFC 9110,
// 7.2).
std::optional<std::string> host_name(const std::string& host) {
  const bool brackets = host.starts_with('[');
  if (brackets && host.find(']') == std::string::npos) return std::nullopt;
  const std::size_t end = std::min(brackets ? host.find(']') : host.find(':'), host.size());
  const std::string name = ascii_lower(brackets ? host.substr(1, end - 1) : host.substr(0, end));
  std::string_view port = std::string_view(host).substr(std::min(end + brackets, host.size()));
  if (brackets
          ? !is_address(AF_INET6, name)
          : name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_") !=
                                std::string::npos)
    return std::nullopt;
  if (!port.empty() &&
      (port[0] != ':' || port.find_first_not_of("0123456789", 1) != std::string_view::npos))
    return std::nullopt;
  return name;
}

bool names_loopback(const std::string& name) {
  return name == "localhost" || name == "::1" ||
         (name.starts_with("127.") && is_address(AF_INET, name));
}

// --- the request ---

// Counts what the parser finds and refuses more than a request can need: memory and time stay in
// proportion to its size.
json parse_limited(const std::string& body, const ServiceOptions& options) {
  std::size_t values = 0;
  const auto count = [&](int depth, json::parse_event_t, json&) {
    if (++values > 2 * options.max_values)  // arrays and objects have a begin and an end
      raise<DataError>("the body has more than {} values; expected inputs and parameters",
                       options.max_values);
    if (depth > static_cast<int>(options.max_depth))
      raise<DataError>("the body is nested more than {} deep; expected inputs and parameters",
                       options.max_depth);
    return true;
  };
  return json::parse(body, count);
}

json parse_json(const std::string& body, const ServiceOptions& options) {
  constexpr std::size_t kLongest = 200;
  try {
    return parse_limited(body, options);
  } catch (const json::exception& error) {
    std::string reason(json_reason(error.what()));  // quotes the body, which may be anything
    reason.resize(std::min(reason.size(), kLongest));
    std::replace_if(
        reason.begin(), reason.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    raise<DataError>("the body is not JSON: {}", reason);
  }
}

void require_key(const json& request, const std::string& key, const std::string& example) {
  if (!request.is_object() || !request.contains(key))
    raise<DataError>("the body has no '{}'; expected {}", key, example);
}

json parse_request(const std::string& body, const ServiceOptions& options,
                   const Endpoint& endpoint) {
  json request = parse_json(body, options);
  const std::string& key = endpoint.bare_input_key;
  if (request.is_object() && !request.contains("inputs") && !key.empty() && request.contains(key)) {
    json whole = {{"parameters", request.value("parameters", json())}};
    whole["inputs"] = std::move(request);
    return whole;
  }
  require_key(request, "inputs", endpoint.example);
  return request;
}

bool is_inference_path(const std::string& path) {
  return path == "/" || path.starts_with("/models/");
}

}  // namespace

InferenceService::InferenceService(ServiceOptions options, Endpoint endpoint)
    : options_(std::move(options)), endpoint_(std::move(endpoint)) {
  for (std::string& host : options_.allowed_hosts) host = ascii_lower(host);
}

const Route* InferenceService::route_of(const std::string& path) const {
  const auto found = std::find_if(endpoint_.routes.begin(), endpoint_.routes.end(),
                                  [&](const Route& route) { return route.path == path; });
  return found == endpoint_.routes.end() ? nullptr : &*found;
}

// Messages quote what was sent, headers and paths too, which may be any bytes; JSON is UTF-8.
HttpResponse InferenceService::error(const HttpRequest& request, int status,
                                     const std::string& message) const {
  std::string text = message;
  if (text::find_invalid_utf8(text)) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  }
  const Route* route = route_of(request.path);
  if (route != nullptr && route->error) return json_response(route->error(status, text), status);
  return json_response({{"error", text}}, status);
}

bool InferenceService::is_allowed(const std::string& host) const {
  const auto& allowed = options_.allowed_hosts;
  if (std::find(allowed.begin(), allowed.end(), "*") != allowed.end()) return true;
  const std::optional<std::string> name = host_name(host);
  if (!name) return false;
  // A client that uses the address was not redirected here through another site's name.
  const bool address = is_address(AF_INET, *name) || is_address(AF_INET6, *name);
  return names_loopback(*name) || (address && !options_.loopback_only) ||
         std::find(allowed.begin(), allowed.end(), *name) != allowed.end();
}

// A web page that the user visits elsewhere must not reach this server through a name of its own
// (DNS rebinding), nor make the browser send questions here.
std::optional<HttpResponse> InferenceService::refuse_unauthenticated_peer(
    const HttpRequest& request) const {
  if (!is_allowed(request.host)) {
    return error(request, 400,
                 fmt::format("the host '{}' is not this server; {}, or start the server with "
                             "--allowed_hosts and that name",
                             request.host.substr(0, 80),
                             options_.loopback_only ? "use localhost" : "use its address"));
  }
  if (!request.origin.empty() && request.origin != "http://" + request.host)
    return error(request, 403, "requests from other pages are refused");
  return std::nullopt;
}

std::optional<HttpResponse> InferenceService::handle_at_once(const HttpRequest& request) const {
  if (auto refused = refuse_unauthenticated_peer(request)) return refused;
  const std::string& path = request.path;
  const bool inference = is_inference_path(path), route = route_of(path) != nullptr;
  if ((inference || route) && request.method == "POST") return std::nullopt;
  const bool reads = request.method == "GET" || request.method == "HEAD";
  const bool known = inference || route || path == "/health" || path == "/info" ||
                     path == "/metrics" || endpoint_.documents.contains(path);
  if (!known || (reads && !route)) return get(request);
  HttpResponse response =
      error(request, 405, fmt::format("{} is not possible here", request.method));
  response.allow = route ? "POST" : inference ? "GET, HEAD, POST" : "GET, HEAD";
  return response;
}

HttpResponse InferenceService::compute(const HttpRequest& request,
                                       const std::stop_token& cancelled) const {
  const CancellationScope scope(cancelled);
  throw_if_interrupted();
  const Route* route = route_of(request.path);
  if (route == nullptr)
    return json_response(
        endpoint_.answer(parse_request(request.body, options_, endpoint_), cancelled));
  const json body = parse_json(request.body, options_);
  require_key(body, route->key, route->example);
  if (StreamBody stream = route->stream ? route->stream(body) : nullptr) {
    HttpResponse response;
    response.content_type = "text/event-stream";
    response.stream = std::move(stream);
    return response;
  }
  return json_response(route->answer(body, cancelled));
}

HttpResponse InferenceService::handle(const HttpRequest& request,
                                      const std::stop_token& cancelled) const {
  try {
    if (auto response = handle_at_once(request)) return *std::move(response);
    return compute(request, cancelled);
  } catch (const Interrupted&) {
    throw;
  } catch (const StatusError& failure) {
    return error(request, failure.status(), failure.what());
  } catch (const Error& failure) {
    return error(request, 400, failure.what());
  } catch (const std::bad_alloc&) {
    return error(request, 503, "not enough memory; send a shorter text");
  } catch (const std::exception& failure) {
    return error(request, 500,
                 fmt::format("internal error, please report it: {}", json_reason(failure.what())));
  }
}

HttpResponse InferenceService::get(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (path == "/") return page("text/html", pages::k_index_html);
  if (path == "/page.css") return page("text/css", pages::k_page_css);
  if (path == "/page.js") return page("text/javascript", pages::k_page_js);
  if (path == "/chat.js") return page("text/javascript", pages::k_chat_js);
  if (path == "/health") return json_response({{"status", "ok"}});
  if (path == "/info") {
    ordered_json info = {{"model", options_.model},
                         {"task", endpoint_.task},
                         {"parameters", options_.num_parameters}};
    info.update(endpoint_.info);
    return json_response(info);
  }
  if (const auto found = endpoint_.documents.find(path); found != endpoint_.documents.end())
    return json_response(found->second);
  if (path == "/metrics" && options_.metrics) {
    HttpResponse metrics;
    metrics.content_type = "text/plain; version=0.0.4; charset=utf-8";
    metrics.body = options_.metrics();
    return metrics;
  }
  std::string known = "POST /";
  for (const Route& route : endpoint_.routes) known += fmt::format(", POST {}", route.path);
  std::string documents;
  for (const auto& [name, document] : endpoint_.documents) documents += name + ", ";
  return error(request, 404,
               fmt::format("unknown path '{}' for a model of {}; expected {}, or GET /, {}/health, "
                           "/info or /metrics",
                           path, endpoint_.task, known, documents));
}

}  // namespace tandem::apps
