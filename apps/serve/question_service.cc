#include "apps/serve/question_service.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pages.h"
#include "tandem/core/error.h"
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

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// "Node7:8080" → "node7", "[::1]:8080" → "::1"; nothing when the header has another form (RFC 9110,
// 7.2).
std::optional<std::string> host_name(const std::string& host) {
  const bool brackets = host.starts_with('[');
  if (brackets && host.find(']') == std::string::npos) return std::nullopt;
  const std::size_t end = std::min(brackets ? host.find(']') : host.find(':'), host.size());
  const std::string name = lower_case(brackets ? host.substr(1, end - 1) : host.substr(0, end));
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

std::string type_name(const json& value) { return value.type_name(); }

// A value for a message. What is nested is only named: writing it out would recurse as deep as
// whoever sent it likes.
std::string shown(const json& value) {
  constexpr std::size_t kLongest = 80;
  if (value.is_structured()) return fmt::format("an {}", type_name(value));
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

std::string text_member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object())
    raise<DataError>("{} is a {}, expected an object with question and context", where,
                     type_name(object));
  if (!object.contains(key)) raise<DataError>("{} has no '{}'", where, key);
  if (!object[key].is_string())
    raise<DataError>("{}.{} is a {}, expected a string", where, key, type_name(object[key]));
  return object[key].get<std::string>();
}

std::size_t count_parameter(const std::string& name, const json& value, std::int64_t min,
                            std::int64_t max) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < min ||
      value.get<std::int64_t>() > max) {
    raise<DataError>("parameters.{} is {}, expected an integer from {} to {}", name, shown(value),
                     min, max);
  }
  return static_cast<std::size_t>(value.get<std::int64_t>());
}

// The names of Hugging Face's question-answering pipeline.
void set_parameter(const std::string& name, const json& value, AnswerOptions& options) {
  if (name == "top_k" || name == "topk") {
    options.n_best = count_parameter(name, value, 1, 1000);
  } else if (name == "max_answer_len") {
    options.postprocess.max_answer_length = count_parameter(name, value, 1, 1 << 20);
  } else if (name == "max_seq_len") {
    options.max_seq_length = count_parameter(name, value, 4, 1 << 20);
  } else if (name == "doc_stride") {
    options.doc_stride = count_parameter(name, value, 0, 1 << 20);
  } else if (name == "handle_impossible_answer") {
    if (!value.is_boolean())
      raise<DataError>("parameters.{} is {}, expected true or false", name, shown(value));
    options.postprocess.version_2_with_negative = value.get<bool>();
  } else {
    raise<DataError>(
        "parameters.{} is not known; known are top_k, max_answer_len, max_seq_len, doc_stride and "
        "handle_impossible_answer",
        name.substr(0, 80));
  }
}

AnswerOptions request_options(const json& request, AnswerOptions options) {
  if (!request.contains("parameters") || request["parameters"].is_null()) return options;
  const json& parameters = request["parameters"];
  if (!parameters.is_object())
    raise<DataError>("parameters is a {}, expected an object", type_name(parameters));
  for (const auto& [name, value] : parameters.items()) {
    if (!value.is_null()) set_parameter(name, value, options);
  }
  return options;
}

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

json parse_request(const std::string& body, const ServiceOptions& options) {
  constexpr std::size_t kLongest = 200;
  json request;
  try {
    request = parse_limited(body, options);
  } catch (const json::exception& error) {
    std::string reason(json_reason(error.what()));  // quotes the body, which may be anything
    reason.resize(std::min(reason.size(), kLongest));
    std::replace_if(
        reason.begin(), reason.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    raise<DataError>("the body is not JSON: {}", reason);
  }
  if (!request.is_object() || !request.contains("inputs")) {
    raise<DataError>(
        R"(the body has no 'inputs'; expected {{"inputs": {{"question": "…", "context": "…"}}}})");
  }
  return request;
}

Question question_of(const json& input, const std::string& name) {
  return {.name = name,
          .question = text_member(input, "question", name),
          .context = text_member(input, "context", name)};
}

std::vector<Question> questions_of(const json& inputs, std::size_t max_questions) {
  if (!inputs.is_array()) return {question_of(inputs, "inputs")};
  if (inputs.empty() || inputs.size() > max_questions) {
    raise<DataError>("inputs has {} questions, expected 1 to {}", inputs.size(), max_questions);
  }
  std::vector<Question> questions;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    questions.push_back(question_of(inputs[i], fmt::format("inputs[{}]", i)));
  return questions;
}

// "No answer" is the empty text at 0, as in Hugging Face's pipeline.
ordered_json answer_json(const Answer& answer) {
  const AnswerSpan span = answer.span.value_or(AnswerSpan{});
  return {{"score", answer.probability},
          {"start", span.start},
          {"end", span.end},
          {"answer", answer.text}};
}

ordered_json answers_json(const std::vector<Answer>& answers, bool list) {
  if (!list) return answer_json(answers.front());
  ordered_json all = ordered_json::array();
  for (const Answer& answer : answers) all.push_back(answer_json(answer));
  return all;
}

bool is_question_path(const std::string& path) {
  return path == "/" || path.starts_with("/models/");
}

}  // namespace

QuestionService::QuestionService(ServiceOptions options, FindAnswers find_answers)
    : options_(std::move(options)), find_answers_(std::move(find_answers)) {
  for (std::string& host : options_.allowed_hosts) host = lower_case(std::move(host));
}

// Messages quote what was sent, headers and paths too, which may be any bytes; JSON is UTF-8.
HttpResponse QuestionService::error(int status, const std::string& message) {
  std::string text = message;
  if (text::find_invalid_utf8(text)) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  }
  return json_response({{"error", text}}, status);
}

bool QuestionService::is_allowed(const std::string& host) const {
  const auto& allowed = options_.allowed_hosts;
  if (std::find(allowed.begin(), allowed.end(), "*") != allowed.end()) return true;
  const std::optional<std::string> name = host_name(host);
  if (!name) return false;
  // Whoever names it by its address did not get here through a name of somebody else.
  const bool address = is_address(AF_INET, *name) || is_address(AF_INET6, *name);
  return names_loopback(*name) || (address && !options_.loopback_only) ||
         std::find(allowed.begin(), allowed.end(), *name) != allowed.end();
}

// A web page that the user visits elsewhere must not reach this server through a name of its own
// (DNS rebinding), nor make the browser send questions here.
std::optional<HttpResponse> QuestionService::refuse_stranger(const HttpRequest& request) const {
  if (!is_allowed(request.host)) {
    return error(400, fmt::format("the host '{}' is not this server; {}, or start the server with "
                                  "--allowed_hosts and that name",
                                  request.host.substr(0, 80),
                                  options_.loopback_only ? "use localhost" : "use its address"));
  }
  if (!request.origin.empty() && request.origin != "http://" + request.host)
    return error(403, "requests from other pages are refused");
  return std::nullopt;
}

std::optional<HttpResponse> QuestionService::handle_at_once(const HttpRequest& request) const {
  if (auto refused = refuse_stranger(request)) return refused;
  const std::string& path = request.path;
  if (request.method == "GET" || request.method == "HEAD") return get(path);
  if (is_question_path(path) && request.method == "POST") return std::nullopt;
  if (!is_question_path(path) && path != "/health" && path != "/info") return get(path);
  HttpResponse response = error(405, fmt::format("{} is not possible here", request.method));
  response.allow = is_question_path(path) ? "GET, HEAD, POST" : "GET, HEAD";
  return response;
}

HttpResponse QuestionService::handle(const HttpRequest& request,
                                     const std::stop_token& cancelled) const {
  try {
    if (auto response = handle_at_once(request)) return *std::move(response);
    return answer_questions(request.body, cancelled);
  } catch (const Cancelled&) {
    return error(503, "the server is stopping");
  } catch (const Error& failure) {
    return error(400, failure.what());
  } catch (const std::bad_alloc&) {
    return error(503, "not enough memory; ask about a shorter text");
  } catch (const std::exception& failure) {
    return error(500,
                 fmt::format("internal error, please report it: {}", json_reason(failure.what())));
  }
}

HttpResponse QuestionService::get(const std::string& path) const {
  if (path == "/") return page("text/html", pages::k_index_html);
  if (path == "/page.css") return page("text/css", pages::k_page_css);
  if (path == "/page.js") return page("text/javascript", pages::k_page_js);
  if (path == "/health") return json_response({{"status", "ok"}});
  if (path == "/info") {
    return json_response(
        {{"model", options_.model},
         {"parameters", options_.num_parameters},
         {"version_2_with_negative", options_.answer.postprocess.version_2_with_negative}});
  }
  return error(404, fmt::format("there is no '{}'; questions go to /", path));
}

HttpResponse QuestionService::answer_questions(const std::string& body,
                                               const std::stop_token& cancelled) const {
  const json request = parse_request(body, options_);
  const AnswerOptions options = request_options(request, options_.answer);
  const json& inputs = request["inputs"];
  const auto answers =
      find_answers_(questions_of(inputs, options_.max_questions), options, cancelled);
  const bool list = options.n_best > 1;
  if (!inputs.is_array()) return json_response(answers_json(answers.front(), list));
  ordered_json results = ordered_json::array();
  for (const auto& found : answers) results.push_back(answers_json(found, list));
  return json_response(results);
}

}  // namespace tandem::apps
