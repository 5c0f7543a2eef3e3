#include "apps/serve/question_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pages.h"
#include "tandem/core/error.h"
#include "tandem/core/python_json.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;

HttpResponse json_response(const ordered_json& json, int status = 200) {
  return {
      .status = status, .content_type = "application/json", .body = python_json(json), .allow = ""};
}

// Messages quote what was sent, headers and paths too, which may be any bytes; JSON is UTF-8.
HttpResponse error_response(int status, std::string message) {
  if (text::find_invalid_utf8(message)) {
    std::replace_if(
        message.begin(), message.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  }
  return json_response({{"error", message}}, status);
}

HttpResponse page(std::string_view type, std::string_view content) {
  return {.status = 200,
          .content_type = fmt::format("{}; charset=utf-8", type),
          .body = std::string(content),
          .allow = ""};
}

// "localhost:8080" → "localhost", "[::1]:8080" → "::1".
std::string host_name(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

// 127.x.y.z and nothing like 127.evil.example.
bool is_loopback_number(const std::string& name) {
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string::npos;
}

bool names_this_machine(const std::string& host) {
  const std::string name = host_name(host);
  return name == "localhost" || name == "::1" || is_loopback_number(name);
}

// --- the request ---

std::string type_name(const ordered_json& value) { return value.type_name(); }

// A value for a message. What is nested is only named: writing it out would recurse as deep as whoever sent it likes.
std::string shown(const ordered_json& value) {
  constexpr std::size_t kLongest = 80;
  if (value.is_structured()) return fmt::format("an {}", type_name(value));
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

std::string text_member(const ordered_json& object, const char* key, const std::string& where) {
  if (!object.is_object())
    raise<DataError>("{} is a {}, expected an object with question and context", where,
                     type_name(object));
  if (!object.contains(key)) raise<DataError>("{} has no '{}'", where, key);
  if (!object[key].is_string())
    raise<DataError>("{}.{} is a {}, expected a string", where, key, type_name(object[key]));
  return object[key].get<std::string>();
}

std::size_t count_parameter(const std::string& name, const ordered_json& value, std::int64_t min,
                            std::int64_t max) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < min ||
      value.get<std::int64_t>() > max) {
    raise<DataError>("parameters.{} is {}, expected an integer from {} to {}", name, shown(value),
                     min, max);
  }
  return static_cast<std::size_t>(value.get<std::int64_t>());
}

// The names of Hugging Face's question-answering pipeline.
void set_parameter(const std::string& name, const ordered_json& value, AnswerOptions& options) {
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
        name);
  }
}

AnswerOptions request_options(const ordered_json& request, AnswerOptions options) {
  if (!request.contains("parameters") || request["parameters"].is_null()) return options;
  const ordered_json& parameters = request["parameters"];
  if (!parameters.is_object())
    raise<DataError>("parameters is a {}, expected an object", type_name(parameters));
  for (const auto& [name, value] : parameters.items()) {
    if (!value.is_null()) set_parameter(name, value, options);
  }
  return options;
}

ordered_json parse_request(const std::string& body) {
  ordered_json request;
  try {
    request = ordered_json::parse(body);
  } catch (const nlohmann::json::exception& error) {
    std::string reason = error.what();  // quotes the body, which may be anything
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

// "No answer" is the empty text at 0, as in Hugging Face's pipeline.
ordered_json answer_json(const Answer& answer) {
  const AnswerSpan span = answer.span.value_or(AnswerSpan{});
  return {{"score", answer.probability},
          {"start", span.start},
          {"end", span.end},
          {"answer", answer.text}};
}

}  // namespace

QuestionService::QuestionService(ServiceOptions options, FindAnswers find_answers)
    : options_(std::move(options)), find_answers_(std::move(find_answers)) {}

HttpResponse QuestionService::too_large(std::size_t limit) {
  return error_response(
      413, fmt::format("the request is larger than {} bytes; ask about a shorter text", limit));
}

HttpResponse QuestionService::handle(const HttpRequest& request) const {
  // A web page that the user visits elsewhere must not reach this server through a name of its own (DNS rebinding), nor
  // make the browser send questions here.
  if (options_.loopback_only && !names_this_machine(request.host)) {
    return error_response(403, fmt::format("the host '{}' is not this machine; use localhost, or "
                                           "start the server with --host",
                                           request.host));
  }
  if (!request.origin.empty() && request.origin != "http://" + request.host)
    return error_response(403, "requests from other pages are refused");
  try {
    return route(request);
  } catch (const Error& error) {
    return error_response(400, error.what());
  } catch (const std::bad_alloc&) {
    return error_response(503, "not enough memory; ask about a shorter text");
  } catch (const std::exception& error) {
    return error_response(500, fmt::format("internal error, please report it: {}", error.what()));
  }
}

HttpResponse QuestionService::route(const HttpRequest& request) const {
  const bool get = request.method == "GET" || request.method == "HEAD";
  const bool question = request.path == "/" || request.path.starts_with("/models/");
  if (question && request.method == "POST") return answer_questions(request.body);
  if (get) {
    if (request.path == "/") return page("text/html", pages::k_index_html);
    if (request.path == "/page.css") return page("text/css", pages::k_page_css);
    if (request.path == "/page.js") return page("text/javascript", pages::k_page_js);
    if (request.path == "/health") return json_response({{"status", "ok"}});
    if (request.path == "/info") {
      return json_response(
          {{"model", options_.model},
           {"parameters", options_.num_parameters},
           {"version_2_with_negative", options_.answer.postprocess.version_2_with_negative}});
    }
  } else if (question || request.path == "/health" || request.path == "/info") {
    HttpResponse response =
        error_response(405, fmt::format("{} is not possible here", request.method));
    response.allow = question ? "GET, HEAD, POST" : "GET, HEAD";
    return response;
  }
  return error_response(404, fmt::format("there is no '{}'; questions go to /", request.path));
}

HttpResponse QuestionService::answer_questions(const std::string& body) const {
  const ordered_json request = parse_request(body);
  const AnswerOptions options = request_options(request, options_.answer);
  const ordered_json& inputs = request["inputs"];
  const auto answer = [&](const ordered_json& input, const std::string& where) {
    const std::string question = text_member(input, "question", where);
    const std::string context = text_member(input, "context", where);
    const std::vector<Answer> found = find_answers_(context, question, options);
    if (options.n_best == 1) return answer_json(found.front());
    ordered_json list = ordered_json::array();
    for (const Answer& one : found) list.push_back(answer_json(one));
    return list;
  };
  if (!inputs.is_array()) return json_response(answer(inputs, "inputs"));
  if (inputs.empty() || inputs.size() > options_.max_questions) {
    raise<DataError>("inputs has {} questions, expected 1 to {}", inputs.size(),
                     options_.max_questions);
  }
  ordered_json results = ordered_json::array();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    results.push_back(answer(inputs[i], fmt::format("inputs[{}]", i)));
  return json_response(results);
}

}  // namespace tandem::apps
