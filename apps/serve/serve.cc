// `tandem serve --model DIR`: a page in a browser for what the model was trained for, and the same
// as JSON for programs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "apps/answering/answering.h"
#include "apps/answering/embedding.h"
#include "apps/answering/generation.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/serve/completion_endpoint.h"
#include "apps/serve/corpus_search.h"
#include "apps/serve/embedding_endpoint.h"
#include "apps/serve/http_server.h"
#include "apps/serve/inference_service.h"
#include "apps/serve/label_endpoint.h"
#include "apps/serve/question_endpoint.h"
#include "apps/serve/rerank_endpoint.h"
#include "apps/serve/search_endpoint.h"
#include "apps/serve/serve_metrics.h"
#include "tandem/core/descriptors.h"
#include "tandem/core/text_file.h"

namespace tandem::apps {
namespace {

std::atomic<bool> g_stop{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables):
                                  // a signal handler can reach nothing else
void handle_stop(int) { g_stop.store(true, std::memory_order_relaxed); }

constexpr std::size_t kMaxInputs = 32;  // inputs of one request

struct Options {
  ModelOptions model;
  AnswerOptions answer;
  EmbedOptions embed;
  TokenLimits tokens;
  std::size_t max_new_tokens = 1 << 20;
  double generation_seconds = 600;
  std::string corpus;
  std::string aggregation{kDefaultAggregation};
  std::vector<std::string> allowed_hosts;
  HttpServerOptions server{
      .port = 8080, .max_connections = 256, .max_connections_per_address = 128};
  double request_seconds = 10;
  double idle_seconds = 60;
  bool stop_with_input = false;
};

void add_corpus(CLI::App& app, Options& options) {
  constexpr CorpusLimits kLimits;
  app.add_option(
         "--corpus", options.corpus,
         fmt::format("file to search with a model of embeddings, by the page and POST /search: a "
                     "text on each line, or a .jsonl of objects with text, perhaps _id and title. "
                     "Embedded at the start; at most {} texts of {} MiB, which stay in memory with "
                     "4 bytes for each value of an embedding",
                     kLimits.texts, kLimits.bytes >> 20))
      ->type_name("FILE");
}

// Texts that a decoder continues.
void add_generation(CLI::App& app, Options& options) {
  app.add_option("--max_new_tokens", options.max_new_tokens,
                 "tokens that a decoder adds to a text at most, whatever a request asks for; the "
                 "model's positions limit them too")
      ->check(whole_number_in(1, 1 << 20))
      ->type_name("N");
  app.add_option("--max_cache_bytes", options.tokens.max_cache_bytes,
                 "keys and values of all texts that a decoder continues at a time, each with room "
                 "for its prompt and its new tokens; other texts wait")
      ->capture_default_str()
      ->check(whole_number_in(std::size_t{1} << 20, std::size_t{1} << 50));
  app.add_option("--generation_timeout", options.generation_seconds,
                 "seconds after which a decoder's text ends as it is")
      ->capture_default_str()
      ->check(number_in(0.01, 1e6));
}

void add_address(CLI::App& app, Options& options) {
  app.add_option("--host", options.server.address,
                 "address to listen at; 0.0.0.0: all interfaces (there is no password)")
      ->capture_default_str();
  app.add_option(
         "--allowed_hosts", options.allowed_hosts,
         "names by which requests may name this server, in addition to its addresses, localhost "
         "and, with --host, its host name; separated by commas; *: any")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--port", options.server.port, "port to listen at; 0: any free one")
      ->capture_default_str();
  app.add_flag("--stop_with_input", options.stop_with_input,
               "stop when standard input ends, for programs that start this one with a pipe");
}

// Limits per client.
void add_limits(CLI::App& app, Options& options) {
  app.add_option("--max_request_bytes", options.server.max_body_bytes, "largest request")
      ->capture_default_str()
      ->check(whole_number_in(1, 1 << 28));
  app.add_option("--max_connections", options.server.max_connections,
                 "connections at once; beyond it those that wait longest for their client are "
                 "closed")
      ->capture_default_str()
      ->check(whole_number_in(1, 1000));
  app.add_option("--max_connections_per_address", options.server.max_connections_per_address,
                 "the same for one address; raise it behind a proxy")
      ->capture_default_str()
      ->check(whole_number_in(1, 1000));
  app.add_option("--max_running", options.server.max_running,
                 "requests computed at once, of one address at most half of them; others wait in a "
                 "queue that is fair between addresses")
      ->capture_default_str()
      ->check(whole_number_in(1, 1000));
  app.add_option("--max_windows", options.answer.max_windows,
                 "windows of max_seq_length tokens, or texts to embed, that one request may take")
      ->capture_default_str()
      ->check(whole_number_in(1, 1 << 20));
  app.add_option("--request_timeout", options.request_seconds,
                 "seconds in which a client must send its request and take the answer")
      ->capture_default_str()
      ->check(number_in(0.1, 3600.0));
  app.add_option("--keep_alive", options.idle_seconds,
                 "seconds that a connection stays open for the next request; 0: one request each")
      ->capture_default_str()
      ->check(number_in(0.0, 3600.0));
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

bool parse_options(const std::vector<std::string>& words, Options& options) {
  CLI::App app(
      "Answers questions, labels texts, finds entities, embeds or continues texts, as the model "
      "was trained for, in a browser, and for programs in the form of Hugging Face's inference "
      "API; embeddings, texts and conversations also in that of OpenAI. Only this machine can "
      "reach it unless --host allows more.",
      "tandem serve");
  // With the defaults, more than a request of 1 MiB of words has.
  options.answer.max_windows = 1024;
  options.answer.max_answer_bytes = 1 << 22;
  add_model_flags(app, options.model);
  add_answer_flags(app, options.answer);
  add_aggregation_flag(app, options.aggregation);
  add_corpus(app, options);
  add_generation(app, options);
  add_address(app, options);
  add_limits(app, options);
  if (!parse_command(app, words)) return false;
  if (app.count("--max_seq_length") > 0)
    options.embed.max_seq_length = options.answer.max_seq_length;
  options.server.request_limit = milliseconds(options.request_seconds);
  options.server.idle_limit = milliseconds(options.idle_seconds);
  return true;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// Adds the names of this machine: "node7.example" is node7 too.
void add_own_names(std::vector<std::string>& names) {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return;
  const std::string whole = name;
  names.push_back(whole);
  names.push_back(whole.substr(0, whole.find('.')));
}

void warn(const std::string& message) { fmt::print(stderr, "tandem: warning: {}\n", message); }

// A cross-encoder may have modules.json, too, but no Pooling in it.
bool is_bi_encoder(const FoundModel& found, bool has_task) {
  std::error_code unreadable;
  const auto file = found.location.sentence_directory() / "modules.json";
  if (!std::filesystem::exists(file, unreadable)) return false;
  return !has_task || read_text_file(file).find("Pooling\"") != std::string::npos;
}

// Labels of pairs by a model that has none: its scores.
std::vector<std::vector<LabelScore>> scores_as_labels(Reranker& reranker,
                                                      std::span<const LabelledText> texts,
                                                      std::optional<Scores> scores,
                                                      const std::stop_token& cancelled) {
  std::vector<std::vector<LabelScore>> found;
  for (const LabelledText& text : texts) {
    if (!text.pair)
      raise<DataError>("{} is not a pair; expected a query as text and a passage as text_pair",
                       text.name.empty() ? "the text" : text.name);
    const PassageScores one = reranker.score({.query = text.text,
                                              .passages = {*text.pair},
                                              .query_name = text.name,
                                              .passages_name = "text_pair",
                                              .raw_scores = scores == Scores::kNone},
                                             cancelled);
    found.push_back({{.label = 0, .score = one.scores.front()}});
  }
  return found;
}

// The model for its purpose, and what it does for requests.
class Server {
 public:
  Server(const Options& options, const Environment& environment)
      : name_(options.model.files.model_name_or_path), answers_(options.answer) {
    std::optional<FoundModel> found(std::in_place, options.model, environment, /*sentence=*/false,
                                    models::all_families());
    const std::optional<Purpose> task = purpose_of(*found);
    // The files of sentence-transformers, which the first search did not download.
    if (!task) found = find_bi_encoder(options.model, environment);
    const bool embeds = is_bi_encoder(*found, task.has_value());
    labels_.max_seq_length = options.answer.max_seq_length;
    labels_.max_windows = options.answer.max_windows;
    const bool decodes = found->is_decoder() && !task;
    if (decodes && models::read_logit_score(found->location.sentence_directory(), found->config)) {
      refuse_corpus(options, "reranking");
      const auto logit = find_logit_reranker(*found);
      pair_model_.reset(new InferenceModel(reranking_model(*found, logit, environment)));
      reranker_.emplace(*found, *pair_model_, options.embed.max_seq_length, logit);
      return;
    }
    if (decodes && !embeds) {
      refuse_corpus(options, name_of(Purpose::kGeneration));
      generator_.emplace(*found, environment, options.tokens);
      completions_ = {.positions = generator_->positions(),
                      .max_new_tokens = std::min(options.max_new_tokens, generator_->positions()),
                      .max_texts = kMaxInputs,
                      .time_limit = milliseconds(options.generation_seconds)};
      return;
    }
    // A model whose config.json names no class of a task is one for questions if it has the head.
    const Purpose purpose = embeds ? Purpose::kEmbeddings : task.value_or(Purpose::kQuestions);
    if (purpose == Purpose::kEmbeddings) {
      embedder_.emplace(*found, options.embed, environment);
    } else if (purpose == Purpose::kQuestions) {
      reader_.emplace(*found, environment);
    } else {
      labeller_.emplace(*found, purpose, environment);
      if (purpose == Purpose::kTexts && labeller_->labels().size() == 1)
        reranker_.emplace(
            FoundModel(options.model, environment, /*sentence=*/true, models::all_families()),
            labeller_->model(), options.embed.max_seq_length);
    }
    if (!embedder_) refuse_corpus(options, name_of(purpose));
    if (!options.corpus.empty()) corpus_.emplace(*embedder_, options.corpus, environment);
    aggregation_ = *aggregation_of(options.aggregation);
  }

  const InferenceModel& model() const {
    if (generator_) return generator_->model();
    if (pair_model_) return *pair_model_;
    if (embedder_) return embedder_->model();
    return reader_ ? reader_->model() : labeller_->model();
  }

  Endpoint endpoint() {
    if (generator_) return texts_endpoint();
    if (embedder_) return embeddings_endpoint();
    if (reader_) {
      return question_endpoint(answers_, kMaxInputs, std::bind_front(&Reader::answer, &*reader_));
    }
    if (pair_model_) {
      return with_reranking(
          text_endpoint(labels_, kMaxInputs, {"LABEL_0"},
                        [&](std::span<const LabelledText> texts, const LabelOptions&,
                            std::optional<Scores> scores, const std::stop_token& cancelled) {
                          return scores_as_labels(*reranker_, texts, scores, cancelled);
                        }));
    }
    if (labeller_->purpose() == Purpose::kTexts) {
      Endpoint texts = text_endpoint(labels_, kMaxInputs, labeller_->labels(),
                                     std::bind_front(&Labeller::label_texts, &*labeller_));
      return reranker_ ? with_reranking(std::move(texts)) : texts;
    }
    return token_endpoint(labels_, aggregation_, kMaxInputs, labeller_->labels(),
                          std::bind_front(&Labeller::label_tokens, &*labeller_));
  }

 private:
  static void refuse_corpus(const Options& options, std::string_view purpose) {
    if (options.corpus.empty()) return;
    raise<ConfigError>(
        "--corpus: the model was trained for {}, expected one of {}; see tandem embed", purpose,
        name_of(Purpose::kEmbeddings));
  }

  Endpoint with_reranking(Endpoint endpoint) {
    add_reranking(endpoint, name_, answers_.max_windows,
                  std::bind_front(&Reranker::score, &*reranker_));
    return endpoint;
  }

  Endpoint embeddings_endpoint() {
    nlohmann::ordered_json info = {{"embedding_size", embedder_->size()},
                                   {"max_input_length", embedder_->max_tokens()},
                                   {"max_client_batch_size", answers_.max_windows},
                                   {"prompts", embedder_->files().prompts},
                                   {"similarity", embedder_->files().similarity}};
    if (corpus_) info["corpus"] = {{"file", corpus_->name()}, {"texts", corpus_->texts()}};
    Endpoint endpoint = embedding_endpoint(name_, answers_.max_windows, std::move(info),
                                           std::bind_front(&Embedder::answer, &*embedder_));
    if (corpus_)
      endpoint.routes.push_back(
          search_route(answers_.max_answer_bytes, std::bind_front(&CorpusSearch::find, &*corpus_)));
    return endpoint;
  }

  Endpoint texts_endpoint() {
    return completion_endpoint(
        name_, completions_,
        {{"chat", generator_->has_chat_template()},
         {"max_total_tokens", completions_.positions},
         {"max_new_tokens", completions_.max_new_tokens}},
        {.tokens_of_text = std::bind_front(&Generator::tokens_of_text, &*generator_),
         .tokens_of_chat = std::bind_front(&Generator::tokens_of_chat, &*generator_),
         .generate = std::bind_front(&Generator::generate, &*generator_)});
  }

  std::string name_;
  AnswerOptions answers_;
  CompletionLimits completions_;
  LabelOptions labels_;
  Aggregation aggregation_ = Aggregation::kFirst;
  std::optional<Generator> generator_;  // one of the five
  std::optional<Embedder> embedder_;
  std::optional<CorpusSearch> corpus_;  // corpus of the embedder
  std::optional<Reader> reader_;
  std::optional<Labeller> labeller_;
  std::unique_ptr<InferenceModel> pair_model_;  // scores by logits
  std::optional<Reranker> reranker_;  // for pair_model_, or a labeller's model with one label
};

HttpHandlers handlers_of(const InferenceService& service, ServeMetrics& metrics) {
  return {
      .at_once = [&](const HttpRequest& request) { return service.handle_at_once(request); },
      .compute =
          [&](const HttpRequest& request, const std::stop_token& cancelled) {
            return service.handle(request, cancelled);
          },
      .error = [&](const HttpRequest& request, int status,
                   const std::string& message) { return service.error(request, status, message); },
      .warn = &warn,
      .answered = [&](const HttpRequest& request, int status,
                      double seconds) { metrics.count(request, status, seconds); }};
}

// Stops the server at the end of standard input: a pipe ends with the process that holds it, even
// if that process is killed.
void stop_with_input() {
  std::thread([] {
    char unused[256];
    ssize_t bytes = 1;
    while (bytes > 0 || (bytes < 0 && errno == EINTR))
      bytes = ::read(STDIN_FILENO, unused, sizeof unused);
    handle_stop(0);
  }).detach();
}

void announce(const std::string& model, const std::string& address, std::uint16_t port) {
  if (!is_loopback(address))
    warn(fmt::format("every program that reaches {} can send requests; there is no password",
                     address));
  const bool v6 = address.find(':') != std::string::npos;
  fmt::print("tandem: {} answers at http://{}{}{}:{}/ (Ctrl-C ends)\n", model, v6 ? "[" : "",
             address, v6 ? "]" : "", port);
  std::fflush(stdout);
}

}  // namespace

int serve(const Invocation& invocation) {
  Options options;
  if (!parse_options(invocation.words, options)) return 0;
  std::signal(SIGPIPE, SIG_IGN);  // a client that goes away

  reserve_descriptors(HttpServer::descriptors(options.server),
                      fmt::format("a server of {} connections", options.server.max_connections),
                      "allow fewer connections (--max_connections)");
  Server served(options, invocation.environment);
  print_warnings(served.model());
  const std::string& model = options.model.files.model_name_or_path;
  const bool loopback = is_loopback(options.server.address);
  if (!loopback) add_own_names(options.allowed_hosts);
  const Endpoint endpoint = served.endpoint();
  std::vector<std::string> paths;
  for (const Route& route : endpoint.routes) paths.push_back(route.path);
  ServeMetrics metrics(model, endpoint.task, paths);
  std::optional<HttpServer> server;
  const InferenceService service(
      {.model = model,
       .num_parameters = served.model().model().layout().num_parameters(),
       .loopback_only = loopback,
       .allowed_hosts = options.allowed_hosts,
       .metrics = [&] { return metrics.text(server->load()); }},
      endpoint);
  server.emplace(options.server, handlers_of(service, metrics));
  // Until here a signal ends the program by itself.
  std::signal(SIGTERM, handle_stop);
  std::signal(SIGINT, handle_stop);
  if (options.stop_with_input) stop_with_input();
  announce(model, options.server.address, server->port());
  server->run(g_stop);
  server.reset();  // waits for computations, which use the service
  fmt::print("tandem: stopped\n");
  return 0;
}

}  // namespace tandem::apps
