// `tandem search --model DIR|NAME --eval_corpus FILE …`: judges a bi-encoder by a search in a
// corpus that may be larger than the memory.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "apps/answering/embedding.h"
#include "apps/answering/embedding_job.h"
#include "apps/answering/embedding_output.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/count_line.h"
#include "apps/command/version.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/memory_usage.h"
#include "tandem/core/python_json.h"
#include "tandem/tasks/ranking/corpus_reader.h"
#include "tandem/tasks/ranking/embedding_file.h"
#include "tandem/tasks/ranking/evaluators.h"
#include "tandem/tasks/ranking/retrieval_files.h"

namespace tandem::apps {
namespace {

namespace ranking = tasks::ranking;

struct SearchFlags {
  ModelOptions model;
  EmbedOptions embed;
  ranking::RetrievalFiles files;
  std::string embeddings;
  std::optional<std::string> query_prompt, corpus_prompt;
  bool int8 = false;
  std::size_t truncate_dim = 0;
};

bool parse_options(const std::vector<std::string>& words, SearchFlags& options) {
  CLI::App app(
      "Judges a bi-encoder by an exact search: nDCG, MRR, MAP, recall, precision and accuracy of "
      "sentence-transformers' InformationRetrievalEvaluator, as JSON. The corpus may be larger "
      "than the memory: its embeddings are in a file.",
      "tandem search");
  add_model_flags(app, options.model);
  app.add_option(
         "--eval_corpus", options.files.corpus,
         "documents: JSON lines, CSV, TSV, Parquet or Arrow, also .gz or .zst, with columns "
         "_id and text")
      ->required();
  app.add_option("--eval_queries", options.files.queries, "queries with columns _id and text")
      ->required();
  app.add_option("--eval_qrels", options.files.qrels,
                 "relevant documents: columns query-id and corpus-id, and optionally score")
      ->required();
  app.add_option("--embeddings", options.embeddings,
                 "NAME.npy for the embeddings of the corpus; a killed command resumes, and a file "
                 "is used again")
      ->required();
  app.add_flag("--int8", options.int8,
               "keep and compare a byte of each value; the ranges are those of the first 1,024 "
               "documents");
  app.add_option("--truncate_dim", options.truncate_dim, "compare the first N values")
      ->check(whole_number_in(1, 1 << 20))
      ->type_name("N");
  app.add_option("--query_prompt", options.query_prompt,
                 "text in front of every query (default: the prompt query of the model)");
  app.add_option("--corpus_prompt", options.corpus_prompt,
                 "text in front of every document (default: the prompt document, passage or corpus "
                 "of the model)");
  app.add_option("--max_seq_length", options.embed.max_seq_length,
                 "tokens of a text, special ones included (default: the model's own length)")
      ->check(whole_number_in(3, 1 << 20));
  if (!parse_command(app, words)) return false;
  if (!options.embeddings.ends_with(".npy"))
    throw ConfigError(fmt::format("--embeddings: found '{}', expected a name that ends with .npy",
                                  options.embeddings),
                      /*usage=*/true);
  options.embed.prompt = "";  // queries and documents have their own
  return true;
}

std::vector<float> embed(Embedder& embedder, const std::string& prompt,
                         std::span<const ranking::Document> documents, std::size_t first) {
  std::vector<std::string> texts;
  for (const ranking::Document& one : documents) texts.push_back(one.text);
  return embedder.embed(prompt, texts, {.first = first + 1});
}

// The model, corpus and prompt of the embeddings.
std::string contents_text(const SearchFlags& options, const Embedder& embedder,
                          const FoundModel& found, const std::string& prompt) {
  const std::filesystem::path& corpus = options.files.corpus;
  return embedder_job(found, embedder, prompt, options.model.bf16) +
         fmt::format("corpus={}, {}\n", std::filesystem::absolute(corpus).string(),
                     file_version(corpus));
}

// The contents of a whole file are recorded in a file next to it. Throws DataError for other
// contents.
void check_contents(const SearchFlags& options, const std::string& contents) {
  const auto found = read_file_if_exists(options.embeddings + ".contents");
  if (!found) {
    fmt::print(stderr,
               "tandem: warning: {}: found no record of its model and corpus, so it is used as it "
               "is\n",
               options.embeddings);
  } else if (*found != contents) {
    raise<DataError>(
        "--embeddings {}: found embeddings of another model, corpus or prompt; remove the file to "
        "compute it anew, or pass another name",
        options.embeddings);
  }
}

struct Corpus {
  ranking::DocumentIds ids;
  ranking::IdNumbers judged;  // those that the corpus has
};

// Reads the ids of the corpus, and embeds the documents whose embeddings are not in the file.
Corpus embed_corpus(const SearchFlags& options, const std::string& prompt,
                    const std::string& contents, const EmbeddingFormat& format,
                    Embedder& embedder) {
  Corpus corpus;
  const ranking::IdNumbers wanted = ranking::judged_documents(options.files.qrels);
  std::optional<NpyFile> file;
  if (std::filesystem::exists(options.embeddings))
    check_contents(options, contents);
  else  // kernels decide the last bits
    file.emplace(options.embeddings, format, contents + "kernels=" + kernels_text());
  CountLine progress("tandem search", "documents embedded", file ? file->rows() : 0);
  ranking::CorpusReader reader(options.files.corpus);
  for (auto some = reader.next(kTextsAtOnce); !some.empty(); some = reader.next(kTextsAtOnce)) {
    const std::size_t first = corpus.ids.size();
    for (const ranking::Document& one : some) {
      if (wanted.contains(one.id)) corpus.judged.emplace(one.id, corpus.ids.size());
      corpus.ids.add(one.id);
    }
    if (!file || file->rows() >= corpus.ids.size()) continue;
    const std::size_t there = file->rows() - first;
    file->append(embed(embedder, prompt, std::span(some).subspan(there), file->rows()));
    progress.show(corpus.ids.size());
  }
  if (file) {
    write_file(options.embeddings + ".contents", contents);
    file->commit();
    progress.finish(corpus.ids.size());
  }
  if (reader.left_out() > 0)
    fmt::print(stderr, "tandem: warning: {} documents with an empty text are left out\n",
               reader.left_out());
  return corpus;
}

// The ranges of the first documents; none of float32.
EmbeddingFormat format_of(const SearchFlags& options, const std::string& prompt,
                          Embedder& embedder) {
  EmbeddingFormat format{.size = embedder.size()};
  if (!options.int8) return format;
  format.precision = EmbeddingPrecision::kInt8;
  ranking::CorpusReader reader(options.files.corpus);
  const auto some = reader.next(kTextsAtOnce);
  format.ranges.add(embed(embedder, prompt, some, 0), format.size);
  return format;
}

// The first `width` values of each query, as bytes are for int8.
std::vector<float> embed_queries(const ranking::RetrievalSet& set, const std::string& prompt,
                                 const EmbeddingFormat& format, std::size_t width,
                                 Embedder& embedder) {
  std::vector<float> values = embedder.embed(prompt, set.queries.texts, {});
  if (format.precision == EmbeddingPrecision::kInt8) {
    std::string bytes;
    append_embeddings(format, values, bytes);
    std::transform(bytes.begin(), bytes.end(), values.begin(),
                   [](char byte) { return static_cast<signed char>(byte); });
  }
  std::vector<float> cut;
  for (std::size_t query = 0; query < set.queries.texts.size(); ++query) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(query * format.size);
    cut.insert(cut.end(), from, from + static_cast<std::ptrdiff_t>(width));
  }
  return cut;
}

void check_file(const ranking::EmbeddingFile& file, const SearchFlags& options,
                const EmbeddingFormat& format, std::size_t documents) {
  const std::size_t bytes = options.int8 ? 1 : sizeof(float);
  if (file.texts() == documents && file.width() == format.size && file.value_bytes() == bytes)
    return;
  raise<DataError>(
      "--embeddings {}: found {} rows of {} values of {} bytes, expected {} rows of {} values of "
      "{}; remove the file to compute it anew",
      options.embeddings, file.texts(), file.width(), file.value_bytes(), documents, format.size,
      bytes);
}

}  // namespace

int search(const Invocation& invocation) {
  SearchFlags options;
  if (!parse_options(invocation.words, options)) return 0;
  const FoundModel found = find_bi_encoder(options.model, invocation.environment);
  Embedder embedder(found, options.embed, invocation.environment);
  print_warnings(embedder.model());
  const models::SentenceFiles& files = embedder.files();
  const std::string of_queries = options.query_prompt.value_or(files.query_prompt());
  const std::string of_corpus = options.corpus_prompt.value_or(files.document_prompt());
  const EmbeddingFormat format = format_of(options, of_corpus, embedder);
  const Corpus corpus = embed_corpus(
      options, of_corpus, contents_text(options, embedder, found, of_corpus), format, embedder);
  const ranking::RetrievalSet set = ranking::read_judged_queries(options.files, corpus.judged);
  for (const std::string& note : set.notes) fmt::print(stderr, "tandem: warning: {}\n", note);
  const ranking::EmbeddingFile file(options.embeddings);
  check_file(file, options, format, corpus.ids.size());
  const std::size_t width =
      options.truncate_dim == 0 ? format.size : std::min(options.truncate_dim, format.size);
  const std::vector<float> queries = embed_queries(set, of_queries, format, width, embedder);
  const auto& function = ranking::similarity_function(embedder.files().similarity);
  const ranking::RetrievalCuts cuts;
  ranking::Search search(
      function, {queries, width}, cuts.largest(),
      [&](std::size_t a, std::size_t b) { return corpus.ids.at(a) > corpus.ids.at(b); });
  ThreadPool threads(embedder.model().num_threads());
  const kernels::KernelSet kernels = kernels::select_kernels(
      kernels::CpuFeatures::detect(), invocation.environment.get("TANDEM_KERNELS").value_or(""));
  kernels::Scratch scratch(threads.num_threads());
  CountLine progress("tandem search", "documents searched");
  ranking::search_file(file, width, search, {threads, kernels, scratch},
                       [&](std::size_t texts) { progress.show(texts); });
  progress.finish(file.texts());
  const ranking::SearchResult result{.function = function.similarity,
                                     .queries = ranking::judged_hits(set, search.take_hits())};
  nlohmann::ordered_json metrics;
  for (const auto& [key, value] :
       ranking::information_retrieval(std::span(&result, 1), cuts, "").metrics)
    metrics[key] = value;
  std::cout << python_json(metrics) << '\n' << std::flush;
  fmt::print(stderr, "tandem search: {} queries, {} MiB at most\n", set.queries.texts.size(),
             memory_usage().peak >> 20);
  return 0;
}

}  // namespace tandem::apps
