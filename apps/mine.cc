// `tandem mine --model DIR|NAME --file FILE`: hard negatives for pairs of queries and answers.
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <utility>

#include "apps/answering/embedding.h"
#include "apps/answering/hard_negatives.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/count_line.h"
#include "apps/command/text_lines.h"
#include "apps/command/text_output.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/data/read_rows.h"

namespace tandem::apps {
namespace {

namespace ranking = tasks::ranking;

// The prompt of one side; neither: one of the model's.
struct PromptOptions {
  std::optional<std::string> name, text;
};

struct MineFlags {
  ModelOptions model;
  MineOptions mine;
  std::string file, corpus, output = "-";
  std::string query_column, answer_column;
  PromptOptions query_prompt, corpus_prompt;
  EmbedOptions embed;
  std::string format, sampling = "top";
};

template <class Value>
void add_optional(CLI::App& app, const char* name, std::optional<Value>& value, const char* help) {
  app.add_option_function<Value>(
      name, [&value](const Value& given) { value = given; }, help);
}

void add_filters(CLI::App& app, ranking::MiningOptions& mining) {
  app.add_option("--num_negatives", mining.num_negatives, "negatives of a query")
      ->check(whole_number_in(1, 10000))
      ->capture_default_str();
  app.add_option("--range_min", mining.range_min, "skip this many of the nearest candidates")
      ->check(whole_number_in(0, 1 << 20))
      ->capture_default_str();
  add_optional(app, "--range_max", mining.range_max,
               "look at no candidate after this one (default: enough for --num_negatives)");
  add_optional(app, "--max_score", mining.max_score, "leave out candidates that are more similar");
  add_optional(app, "--min_score", mining.min_score, "leave out candidates that are less similar");
  add_optional(app, "--absolute_margin", mining.absolute_margin,
               "leave out candidates that are not this much less similar than the answer");
  add_optional(app, "--relative_margin", mining.relative_margin,
               "the same as a fraction of the answer's similarity, for example 0.05");
  app.add_option("--seed", mining.seed, "of --sampling_strategy random")->capture_default_str();
}

void add_prompts(CLI::App& app, MineFlags& options) {
  auto* query =
      app.add_option("--query_prompt", options.query_prompt.text, "text in front of every query");
  app.add_option("--query_prompt_name", options.query_prompt.name,
                 "prompt of the queries, one of the model's (default: query, if it has one)")
      ->excludes(query);
  auto* corpus = app.add_option("--corpus_prompt", options.corpus_prompt.text,
                                "text in front of every document");
  app.add_option("--corpus_prompt_name", options.corpus_prompt.name,
                 "prompt of the documents (default: document, passage or corpus, if it has one)")
      ->excludes(corpus);
}

void add_embedding(CLI::App& app, EmbedOptions& embed) {
  app.add_option("--max_seq_length", embed.max_seq_length,
                 "tokens of a text, special ones included; longer texts are cut (default: the "
                 "model's own length)")
      ->check(whole_number_in(3, 1 << 20));
  app.add_option("--truncate_dim", embed.truncate_dim,
                 "compare the first N values of embeddings, for models trained with Matryoshka "
                 "losses")
      ->check(whole_number_in(1, 1 << 20))
      ->type_name("N");
}

bool parse_options(const std::vector<std::string>& words, MineFlags& options) {
  CLI::App app(
      "Finds hard negatives: documents that a bi-encoder finds near a query and that are not its "
      "answers. Reads pairs of a query and an answer, writes JSON lines that run_embedding and "
      "run_reranker train on. The choices are those of sentence-transformers' "
      "mine_hard_negatives.",
      "tandem mine");
  add_model_flags(app, options.model);
  app.add_option("--file", options.file,
                 "pairs: JSON lines, CSV, TSV, Parquet or Arrow, with a column of queries and one "
                 "of answers; also .gz or .zst")
      ->required();
  app.add_option("--corpus", options.corpus,
                 "documents to search in addition to the answers: JSON lines, CSV, TSV, Parquet or "
                 "Arrow with a column text, or another file with a document on each line; also "
                 ".gz or .zst");
  app.add_option("--output", options.output, "file of JSON lines to write; -: standard output")
      ->capture_default_str();
  app.add_option("--anchor_column_name", options.query_column,
                 "column of the queries (default: the first one)");
  app.add_option("--positive_column_name", options.answer_column,
                 "column of the answers (default: the second one)");
  add_filters(app, options.mine.mining);
  app.add_option("--sampling_strategy", options.sampling,
                 "the most similar candidates, or random ones of the range")
      ->check(CLI::IsMember({"top", "random"}))
      ->capture_default_str();
  app.add_option("--output_format", options.format,
                 "triplet: a row for each negative; n-tuple: a row for each answer, with all "
                 "negatives; labeled-pair: documents with the label 1 or 0; labeled-list: a list "
                 "of documents and one of labels")
      ->check(CLI::IsMember({"triplet", "n-tuple", "labeled-pair", "labeled-list"}))
      ->default_str("triplet");
  app.add_flag("--output_scores", options.mine.scores,
               "write similarities: in addition to the texts, or in place of labels");
  app.add_flag("--include_positives", options.mine.mining.include_positives,
               "keep answers among the candidates, for files that test a reranker; needs n-tuple");
  add_prompts(app, options);
  add_embedding(app, options.embed);
  return parse_command(app, words);
}

MinedFormat format_of(const std::string& name, bool include_positives) {
  if (include_positives && !name.empty() && name != "n-tuple") {
    throw ConfigError(
        fmt::format("--include_positives: found --output_format {}, expected n-tuple", name),
        /*usage=*/true);
  }
  if (include_positives) return MinedFormat::kTuple;
  if (name == "n-tuple") return MinedFormat::kTuple;
  if (name == "labeled-pair") return MinedFormat::kLabeledPair;
  return name == "labeled-list" ? MinedFormat::kLabeledList : MinedFormat::kTriplet;
}

// The texts of the input, and views of them.
struct Input {
  data::Rows pair_rows, corpus_rows;
  std::vector<std::string> corpus_lines;
  std::vector<QueryAnswer> pairs;
  std::vector<std::string_view> corpus;
};

void read_pairs(MineFlags& options, Input& input) {
  const std::vector<std::filesystem::path> files = {options.file};
  input.pair_rows = data::read_rows(
      files, {.choose = [&](std::span<const std::string> names) {
        if (names.size() < 2)
          raise<DataError>("{}: found {} column, expected one of queries and one of answers",
                           options.file, names.size());
        if (options.query_column.empty()) options.query_column = names[0];
        if (options.answer_column.empty()) options.answer_column = names[1];
        return std::vector<std::string>{options.query_column, options.answer_column};
      }});
  const data::Rows& rows = input.pair_rows;
  const formats::Column& queries = rows.texts(options.query_column);
  const formats::Column& answers = rows.texts(options.answer_column);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const formats::Column* column : {&queries, &answers})
      if (column->is_null(row))
        raise<DataError>("{}: column '{}' is empty, expected a text", rows.location(row),
                         column->name);
    input.pairs.push_back({queries.texts[row], answers.texts[row]});
  }
  options.mine.query_column = options.query_column;
  options.mine.answer_column = options.answer_column;
}

// Empty documents are left out.
void read_corpus(const std::string& path, Input& input) {
  if (path.empty()) return;
  if (data::is_row_file(path)) {
    const std::vector<std::filesystem::path> files = {path};
    input.corpus_rows = data::read_rows(
        files, {.choose = [](std::span<const std::string>) -> std::vector<std::string> {
          return {"text"};
        }});
    const formats::Column& texts = input.corpus_rows.texts("text");
    for (std::size_t row = 0; row < texts.size; ++row)
      if (!texts.is_null(row)) input.corpus.push_back(texts.texts[row]);
  } else {
    TextLines lines(path);
    for (std::string line; lines.next(line);) input.corpus_lines.push_back(line);
    input.corpus.assign(input.corpus_lines.begin(), input.corpus_lines.end());
  }
  std::erase(input.corpus, "");
}

// The text in front of one side's texts: as given, else `usual`. `flag`: for messages.
std::string prompt_text(const models::SentenceFiles& files, const PromptOptions& given,
                        const std::string& usual, std::string_view flag) {
  return given.name ? prompt_named(files, *given.name, flag) : given.text.value_or(usual);
}

// `done` counts the texts of both sides.
EmbedTexts embedding_of(Embedder& embedder, std::string prompt, CountLine& progress,
                        std::size_t& done) {
  return [&embedder, &progress, &done,
          prompt = std::move(prompt)](std::span<const std::string> texts) {
    std::vector<float> values;
    values.reserve(texts.size() * embedder.size());
    for (std::size_t begin = 0; begin < texts.size(); begin += kTextsAtOnce) {
      const auto some = texts.subspan(begin, std::min(kTextsAtOnce, texts.size() - begin));
      const std::vector<float> embedded = embedder.embed(prompt, some, {.first = begin + 1});
      values.insert(values.end(), embedded.begin(), embedded.end());
      progress.show(done += some.size());
    }
    return values;
  };
}

void report(const MinedRows& mined, const MineOptions& options) {
  fmt::print(stderr, "tandem mine: {} queries, {} documents, {} rows\n", mined.queries,
             mined.documents, mined.rows);
  const auto left_out = [](std::size_t count, const char* filter) {
    if (count > 0) fmt::print(stderr, "tandem mine: {} candidates left out by {}\n", count, filter);
  };
  left_out(mined.left_out.absolute_margin, "--absolute_margin");
  left_out(mined.left_out.relative_margin, "--relative_margin");
  left_out(mined.left_out.max_score, "--max_score");
  left_out(mined.left_out.min_score, "--min_score");
  if (mined.short_queries > 0)
    fmt::print(stderr,
               "tandem mine: {} queries have fewer than {} negatives; use a larger --range_max, or "
               "weaker filters\n",
               mined.short_queries, options.mining.num_negatives);
}

}  // namespace

int mine(const Invocation& invocation) {
  MineFlags options;
  if (!parse_options(invocation.words, options)) return 0;
  options.mine.format = format_of(options.format, options.mine.mining.include_positives);
  if (options.sampling == "random")
    options.mine.mining.sampling = ranking::NegativeSampling::kRandom;
  ranking::check(options.mine.mining);
  require_other_file(options.output, "--file", options.file);
  require_other_file(options.output, "--corpus", options.corpus);
  require_written_format(options.output, std::array<std::string_view, 1>{".jsonl"});
  Input input;
  read_pairs(options, input);
  read_corpus(options.corpus, input);
  options.embed.prompt = "";  // each side has its own
  options.embed.normalize = true;
  const FoundModel found = find_bi_encoder(options.model, invocation.environment);
  Embedder embedder(found, options.embed, invocation.environment);
  print_warnings(embedder.model());
  options.mine.similarity = ranking::similarity_function(embedder.files().similarity).similarity;
  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
  TextOutput output(options.output);
  CountLine progress("tandem mine", "texts embedded");
  std::size_t done = 0;
  const models::SentenceFiles& files = embedder.files();
  const MiningModel model{embedding_of(embedder,
                                       prompt_text(files, options.query_prompt,
                                                   files.query_prompt(), "--query_prompt_name"),
                                       progress, done),
                          embedding_of(embedder,
                                       prompt_text(files, options.corpus_prompt,
                                                   files.document_prompt(), "--corpus_prompt_name"),
                                       progress, done),
                          embedder.size()};
  ThreadPool threads(embedder.model().num_threads());
  const kernels::KernelSet kernels = kernels::select_kernels(
      kernels::CpuFeatures::detect(), invocation.environment.get("TANDEM_KERNELS").value_or(""));
  kernels::Scratch scratch(threads.num_threads());
  const MinedRows mined = mine_hard_negatives(
      input.pairs, input.corpus, model, options.mine, {threads, kernels, scratch},
      [&](const nlohmann::ordered_json& row) { output.write(python_json(row) + "\n"); });
  output.commit();
  progress.finish(done);
  report(mined, options.mine);
  return 0;
}

}  // namespace tandem::apps
