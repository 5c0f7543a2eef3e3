// What `tandem serve` answers to a request: the page, and questions in the form of Hugging Face's inference API for question
// answering. Knows nothing of sockets.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/answering/answering.h"
#include "apps/serve/http_server.h"

namespace tandem::apps {

// Finds the answers to a question in a text; Reader::answer, or a test's.
using FindAnswers = std::function<std::vector<Answer>(
    const std::string& context, const std::string& question, const AnswerOptions& options)>;

struct ServiceOptions {
  std::string model;  // shown on the page
  std::size_t num_parameters = 0;
  AnswerOptions answer;  // what a request does not set
  bool loopback_only =
      true;  // refuse requests that name this server otherwise than as this machine
  std::size_t max_questions = 32;  // of one request
};

// GET / and its parts; GET /health; GET /info; POST / or /models/<any name>:
//   {"inputs": {"question": …, "context": …}, "parameters": {"top_k": 3, …}}
//   → {"score": …, "start": …, "end": …, "answer": …}; a list of them with top_k > 1; a list per question when inputs is a list.
// score is the probability among the n best answers, as in eval_nbest_predictions.json; start and end count code points.
// Errors are {"error": "what was found, what was expected"} with a fitting status.
class QuestionService {
 public:
  QuestionService(ServiceOptions options, FindAnswers find_answers);
  HttpResponse handle(const HttpRequest& request) const;
  static HttpResponse too_large(std::size_t limit);

 private:
  HttpResponse route(const HttpRequest& request) const;
  HttpResponse answer_questions(const std::string& body) const;

  ServiceOptions options_;
  FindAnswers find_answers_;
};

}  // namespace tandem::apps
