#include "apps/serve/question_endpoint.h"

#include <fmt/format.h>

#include "apps/serve/request_json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

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
    unknown_parameter(
        name, "top_k, max_answer_len, max_seq_len, doc_stride and handle_impossible_answer");
  }
}

Question question_of(const json& input, const std::string& name) {
  constexpr const char* kExpected = "an object with question and context";
  return {.name = name,
          .question = text_entry(input, "question", name, kExpected),
          .context = text_entry(input, "context", name, kExpected)};
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

}  // namespace

Endpoint question_endpoint(const AnswerOptions& options, std::size_t max_questions,
                           FindAnswers find_answers) {
  const auto answer = [=](const json& request, const std::stop_token& cancelled) -> ordered_json {
    AnswerOptions asked = options;
    for_each_parameter(request, [&](const std::string& name, const json& value) {
      set_parameter(name, value, asked);
    });
    const json& inputs = request["inputs"];
    const auto answers = find_answers(read_inputs(inputs, max_questions, "questions", question_of),
                                      asked, cancelled);
    const bool list = asked.n_best > 1;
    if (!inputs.is_array()) return answers_json(answers.front(), list);
    ordered_json results = ordered_json::array();
    for (const auto& found : answers) results.push_back(answers_json(found, list));
    return results;
  };
  return {.task = "question-answering",
          .example = R"({"inputs": {"question": "…", "context": "…"}})",
          .bare_input_key = "question",
          .info = {{"version_2_with_negative", options.postprocess.version_2_with_negative}},
          .answer = answer};
}

}  // namespace tandem::apps
