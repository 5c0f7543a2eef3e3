// `tandem rerank --model DIR|NAME QUERY < passages`: passages in the order in which a cross-encoder
// finds them relevant for a query.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <optional>

#include "apps/answering/labeling.h"
#include "apps/answering/reranking.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/line_output.h"
#include "apps/command/text_lines.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct RerankFlags {
  ModelOptions model;
  std::vector<std::string> query;
  std::string file = "-";
  std::string queries;
  std::size_t top_k = std::numeric_limits<std::size_t>::max();
  std::size_t batch_size = 256;
  std::size_t max_seq_length = 0;
  bool raw_scores = false;
  bool json = false;
};

bool parse_options(const std::vector<std::string>& words, RerankFlags& options) {
  CLI::App app(
      "Orders passages by their relevance for a query, the best first, each with its score. Takes "
      "cross-encoders: models of text classification with one label. Scores are those of "
      "sentence-transformers' CrossEncoder.predict.",
      "tandem rerank");
  add_model_flags(app, options.model);
  auto* query = app.add_option("query", options.query, "the query");
  auto* file = app.add_option("--file", options.file,
                              "file with a passage on each line, empty ones included; -: standard "
                              "input")
                   ->capture_default_str();
  app.add_option("--queries", options.queries,
                 "file of JSON lines {\"query\": \"a text\", \"docs\": [\"a text\", ...]}; -: "
                 "standard input; prints a JSON line for each")
      ->excludes(query)
      ->excludes(file);
  app.add_option("--top_k", options.top_k, "passages of a query to print; default: all")
      ->check(whole_number_in(1, 1 << 30))
      ->type_name("N");
  app.add_option("--batch_size", options.batch_size,
                 "passages that are tokenized and computed together; changes no score")
      ->capture_default_str()
      ->check(whole_number_in(1, 1 << 20));
  app.add_option("--max_seq_length", options.max_seq_length,
                 "tokens of a query and a passage together; longer pairs are cut (default: the "
                 "model's own length)")
      ->check(whole_number_in(4, 1 << 20));
  app.add_flag("--raw_scores", options.raw_scores,
               "print logits, without the model's activation function");
  app.add_flag("--json", options.json,
               "print a JSON object for each passage: index (from 0), score and text");
  if (!parse_command(app, words)) return false;
  if (options.query.empty() && options.queries.empty())
    throw ConfigError("rerank: found no query, expected one, or --queries with a file of them",
                      /*usage=*/true);
  return true;
}

// The scores of all passages, some at a time.
std::vector<float> scores_of(Reranker& reranker, const RerankFlags& options,
                             RerankRequest request) {
  std::vector<float> scores;
  const std::vector<std::string> all = std::move(request.passages);
  for (std::size_t begin = 0; begin < all.size(); begin += options.batch_size) {
    const auto some =
        std::span(all).subspan(begin, std::min(options.batch_size, all.size() - begin));
    request.passages.assign(some.begin(), some.end());
    const PassageScores found = reranker.score(request);
    scores.insert(scores.end(), found.scores.begin(), found.scores.end());
  }
  return scores;
}

ordered_json json_of(std::size_t index, float score, const std::string& text) {
  return {{"index", index}, {"score", score}, {"text", text}};
}

void rank_lines(Reranker& reranker, const RerankFlags& options, std::ostream& output) {
  TextLines lines(options.file);
  RerankRequest request{.query = fmt::format("{}", fmt::join(options.query, " ")),
                        .passages = {},
                        .passages_name = lines.source() + ": passage",
                        .raw_scores = options.raw_scores};
  for (std::string line; lines.next(line);) request.passages.push_back(line);
  if (request.passages.empty())
    raise<DataError>("{}: found no passage, expected one on each line", lines.source());
  const std::vector<float> scores = scores_of(reranker, options, request);
  for (const std::size_t i : best_passages(scores, options.top_k)) {
    if (options.json)
      output << python_json(json_of(i, scores[i], request.passages[i])) << '\n';
    else
      output << fmt::format("{:.6f}\t{}\n", scores[i], request.passages[i]);
  }
}

std::string text_of(const json& value, const std::string& where) {
  if (!value.is_string())
    raise<DataError>("{}: found {}, expected a text", where, value.type_name());
  return value.get<std::string>();
}

RerankRequest request_of(const std::string& line, const std::string& where) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  const char* const found = !object.is_object()          ? "no object"
                            : !object.contains("query")  ? "no query"
                            : !object.contains("docs")   ? "no docs"
                            : !object["docs"].is_array() ? "docs that are not a list"
                            : object["docs"].empty()     ? "an empty list of docs"
                                                         : nullptr;
  if (found != nullptr) {
    raise<DataError>(
        "{}: found {}, expected {{\"query\": \"a text\", \"docs\": [\"a text\", ...]}}", where,
        found);
  }
  RerankRequest request{.query = text_of(object["query"], where + ": query"),
                        .passages = {},
                        .query_name = where + ": query",
                        .passages_name = where + ": docs"};
  for (std::size_t i = 0; i < object["docs"].size(); ++i)
    request.passages.push_back(text_of(object["docs"][i], fmt::format("{}: docs[{}]", where, i)));
  return request;
}

void rank_queries(Reranker& reranker, const RerankFlags& options, std::ostream& output) {
  TextLines lines(options.queries);
  bool any = false;
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    any = true;
    RerankRequest request =
        request_of(line, fmt::format("{}, line {}", lines.source(), lines.count()));
    request.raw_scores = options.raw_scores;
    const std::vector<float> scores = scores_of(reranker, options, request);
    ordered_json results = ordered_json::array();
    for (const std::size_t i : best_passages(scores, options.top_k))
      results.push_back(json_of(i, scores[i], request.passages[i]));
    output << python_json({{"query", request.query}, {"results", results}}) << '\n';
    output.flush();
  }
  if (!any) raise<DataError>("{}: found no query, expected one on each line", lines.source());
}

}  // namespace

int rerank(const Invocation& invocation) {
  RerankFlags options;
  if (!parse_options(invocation.words, options)) return 0;
  const FoundModel found(options.model, invocation.environment, /*sentence=*/true,
                         models::all_families());
  const auto logit = find_logit_reranker(found);
  if (!logit) {
    const Purpose purpose = label_purpose(found);
    if (purpose != Purpose::kTexts) refuse_other_purpose(found, purpose);
  }
  InferenceModel model = reranking_model(found, logit, invocation.environment);
  Reranker reranker(found, model, options.max_seq_length, logit);
  print_warnings(model);
  for (const std::string& warning : reranker.files().warnings)
    fmt::print(stderr, "tandem: warning: {}\n", warning);

  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
  LineOutput output(STDOUT_FILENO);
  if (options.queries.empty())
    rank_lines(reranker, options, output);
  else
    rank_queries(reranker, options, output);
  output.flush();
  return 0;
}

}  // namespace tandem::apps
