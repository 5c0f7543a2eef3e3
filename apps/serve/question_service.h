// What `tandem serve` answers to a request: the page, and questions in the form of Hugging Face's
// inference API for question answering. Knows nothing of sockets.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/answering/answering.h"
#include "apps/serve/http_server.h"

namespace tandem::apps {

// Finds the answers to questions; Reader::answer, or a test's. Called by several threads at once.
using FindAnswers = std::function<std::vector<std::vector<Answer>>(
    std::span<const Question> questions, const AnswerOptions& options,
    const std::stop_token& cancelled)>;

struct ServiceOptions {
  std::string model;  // shown on the page
  std::size_t num_parameters = 0;
  AnswerOptions answer;  // what a request does not set, and limits
  // Requests must name this server as localhost or a loopback address; if false, also as any other
  // address (in numbers).
  bool loopback_only = true;
  std::vector<std::string> allowed_hosts;  // names it has beside these; "*": any
  std::size_t max_questions = 32;          // of one request
  std::size_t max_values = 10000;          // JSON values and names of one request
  std::size_t max_depth = 32;              // of JSON
};

// GET / and its parts; GET /health; GET /info; POST / or /models/<any name>:
//   {"inputs": {"question": …, "context": …}, "parameters": {"top_k": 3, …}}
//   → {"score": …, "start": …, "end": …, "answer": …}; a list of them with top_k > 1; a list per
//   question when inputs is a list.
// score is the probability among the n best answers, as in eval_nbest_predictions.json; start and
// end count code points. Errors are {"error": "what was found, what was expected"} with a fitting
// status. Thread-safe.
class QuestionService {
 public:
  QuestionService(ServiceOptions options, FindAnswers find_answers);
  // Everything but questions, and refusals; nothing: handle() has to compute.
  std::optional<HttpResponse> handle_at_once(const HttpRequest& request) const;
  HttpResponse handle(const HttpRequest& request, const std::stop_token& cancelled = {}) const;
  static HttpResponse error(int status, const std::string& message);

 private:
  std::optional<HttpResponse> refuse_stranger(const HttpRequest& request) const;
  bool is_allowed(const std::string& host) const;
  HttpResponse get(const std::string& path) const;
  HttpResponse answer_questions(const std::string& body, const std::stop_token& cancelled) const;

  ServiceOptions options_;
  FindAnswers find_answers_;
};

}  // namespace tandem::apps
