// Questions in the form of Hugging Face's inference API for question answering.
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "apps/answering/answering.h"
#include "apps/serve/inference_service.h"

namespace tandem::apps {

// Finds the answers to questions; Reader::answer, or a test's. Called by several threads at once.
using FindAnswers = std::function<std::vector<std::vector<Answer>>(
    std::span<const Question> questions, const AnswerOptions& options,
    const std::stop_token& cancelled)>;

// {"inputs": {"question": …, "context": …}, "parameters": {"top_k": 3, …}}
//   → {"score": …, "start": …, "end": …, "answer": …}; a list of them with top_k > 1; a list per
//   question when inputs is a list. A body {"question": …, "context": …} is such an input, as
//   huggingface_hub before 0.25 sends it.
// score is the probability among the n best answers, as in eval_nbest_predictions.json; start and
// end count code points.
//   options: what a request does not set, and limits.   max_questions: most in one request.
Endpoint question_endpoint(const AnswerOptions& options, std::size_t max_questions,
                           FindAnswers find_answers);

}  // namespace tandem::apps
