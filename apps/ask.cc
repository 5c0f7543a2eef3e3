// `tandem ask --model DIR --context FILE "question"`: the answer that a trained model finds in a
// text, with its probability.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <iterator>

#include "apps/answering/answering.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/line_output.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/text_file.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;

struct AskFlags {
  ModelOptions model;
  AnswerOptions answer;
  std::string context = "-";
  std::vector<std::string> question;
  bool json = false;
};

bool parse_options(const std::vector<std::string>& words, AskFlags& options) {
  CLI::App app(
      "Answers a question from a text with a model that was trained for question answering.",
      "tandem ask");
  add_model_flags(app, options.model);
  add_answer_flags(app, options.answer);
  app.add_option("--context", options.context, "file with the text; -: standard input")->required();
  app.add_option("question", options.question, "the question")->required();
  app.add_flag("--json", options.json,
               "print a JSON object with answer, probability, and position in code points");
  app.add_option("--n_best", options.answer.n_best, "how many answers to print")
      ->check(whole_number_in(1, 1000));
  return parse_command(app, words);
}

std::string read_context(const std::string& file) {
  const std::string name = fmt::format("the context {}", file == "-" ? "on standard input" : file);
  std::string text =
      file == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(file);
  remove_byte_order_mark(text, name);
  require_text(text, name);
  return text;
}

// One answer; start and end are code points of the context, null when the answer is "none".
ordered_json answer_json(const Answer& answer) {
  ordered_json json;
  json["answer"] = answer.text;
  json["probability"] = answer.probability;
  json["start"] = answer.span ? ordered_json(answer.span->start) : ordered_json();
  json["end"] = answer.span ? ordered_json(answer.span->end) : ordered_json();
  return json;
}

void print_json(const std::string& question, const std::vector<Answer>& answers,
                std::ostream& output) {
  ordered_json result;
  result["question"] = question;
  result.update(answer_json(answers.front()));
  if (answers.size() > 1) {
    for (const Answer& answer : answers) result["n_best"].push_back(answer_json(answer));
  }
  output << python_json(result) << '\n';
}

void print_text(const std::vector<Answer>& answers, std::ostream& output) {
  for (const Answer& answer : answers) {
    output << fmt::format("{} (probability {:.4f})\n", answer.span ? answer.text : "no answer",
                          answer.probability);
  }
}

}  // namespace

int ask(const Invocation& invocation) {
  AskFlags options;
  if (!parse_options(invocation.words, options)) return 0;
  const std::string question = fmt::format("{}", fmt::join(options.question, " "));
  const std::string context = read_context(options.context);
  Reader reader(FoundModel(options.model, invocation.environment), invocation.environment);
  print_warnings(reader.model());

  const Question asked{.name = "", .question = question, .context = context};
  const std::vector<Answer> answers = reader.answer({&asked, 1}, options.answer).front();
  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe, see LineOutput
  LineOutput output(STDOUT_FILENO);
  if (options.json) {
    print_json(question, answers, output);
  } else {
    print_text(answers, output);
  }
  return 0;
}

}  // namespace tandem::apps
