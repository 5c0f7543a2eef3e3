// `kernel_bench tokenize`: texts through the tokenizer, on one thread and on all.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <sstream>

#include "apps/bench/session.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/read_questions.h"
#include "tandem/hub/model_files.h"
#include "tandem/text/tokenizer.h"

namespace tandem::apps::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultFile = "../shared/data/squad/squad1-train-head.json";

struct TokenizeOptions {
  Options common;
  std::string model;
  std::string file;
};

// Questions and contexts of a question file, each context once; or the lines of any other file.
std::vector<std::string> read_texts(const fs::path& file) {
  std::vector<std::string> texts;
  if (file.extension() == ".json" || file.extension() == ".jsonl") {
    const data::QuestionSet questions =
        data::read_questions(file, {.require_id = false, .require_answers = false});
    const char* last_context = nullptr;
    for (const data::QuestionExample& example : questions) {
      texts.emplace_back(example.question);
      if (example.context.data() != last_context) texts.emplace_back(example.context);
      last_context = example.context.data();
    }
  } else {
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) texts.push_back(std::move(line));
    }
  }
  if (texts.empty()) raise<DataError>("'{}' holds no text to tokenize", file.native());
  return texts;
}

// Result of tokenizing all texts: equal for any number of threads.
struct Tokens {
  std::vector<std::uint64_t> of_text;  // a hash of ids and offsets
  std::size_t count = 0;
};

class Tokenizing {
 public:
  Tokenizing(const text::Tokenizer& tokenizer, const std::vector<std::string>& texts)
      : tokenizer_(tokenizer), texts_(texts) {}

  void run(ThreadPool& threads) {
    encodings_.resize(static_cast<std::size_t>(threads.num_threads()));
    threads.parallel_for(num_chunks(texts_.size(), kChunk), [&](std::size_t chunk, int thread) {
      text::Encoding& encoding = encodings_[static_cast<std::size_t>(thread)];
      const std::size_t end = std::min(texts_.size(), (chunk + 1) * kChunk);
      for (std::size_t i = chunk * kChunk; i < end; ++i) tokenizer_.encode(texts_[i], encoding);
    });
  }

  Tokens tokens(ThreadPool& threads) {
    Tokens tokens;
    tokens.of_text.resize(texts_.size());
    encodings_.resize(static_cast<std::size_t>(threads.num_threads()));
    std::vector<std::size_t> counts(texts_.size());
    threads.parallel_for(texts_.size(), [&](std::size_t i, int thread) {
      text::Encoding& encoding = encodings_[static_cast<std::size_t>(thread)];
      tokenizer_.encode(texts_[i], encoding);
      counts[i] = encoding.ids.size();
      std::uint64_t hash = 0xcbf29ce484222325;
      const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
      for (std::size_t t = 0; t < encoding.ids.size(); ++t) {
        add(static_cast<std::uint64_t>(encoding.ids[t]));
        add(encoding.offsets[t].begin);
        add(encoding.offsets[t].end);
      }
      tokens.of_text[i] = hash;
    });
    for (const std::size_t count : counts) tokens.count += count;
    return tokens;
  }

 private:
  static constexpr std::size_t kChunk = 16;  // texts
  const text::Tokenizer& tokenizer_;
  const std::vector<std::string>& texts_;
  std::vector<text::Encoding> encodings_;
};

void report(Session& session, const std::string& name, int threads, const Tokens& tokens,
            const std::vector<std::string>& texts, const Samples& samples) {
  double bytes = 0;
  for (const std::string& text : texts) bytes += static_cast<double>(text.size());
  const Statistics time = statistics(samples.seconds);
  const Statistics rate = samples.rates(bytes * 1e-6);
  const double texts_per_second = static_cast<double>(texts.size()) / time.median;
  const double tokens_per_second = static_cast<double>(tokens.count) / time.median;
  session.report().line(fmt::format(
      "{:<12} {:>3} threads {:8.1f} MB/s ({:.1f} – {:.1f}), {:.0f} texts/s, {:.0f} tokens/s", name,
      threads, rate.median, rate.min, rate.max, texts_per_second, tokens_per_second));
  session.report().add({{"name", name},
                        {"verified", true},
                        {"threads", threads},
                        {"seconds", to_json(time)},
                        {"unit", "MB/s"},
                        {"rate", to_json(rate)},
                        {"texts_per_second", texts_per_second},
                        {"tokens_per_second", tokens_per_second}});
}

int run(const TokenizeOptions& options, const Environment& environment) {
  const std::string file = options.file.empty() ? kDefaultFile : options.file;
  if (options.file.empty() && !fs::exists(file)) {
    raise<ConfigError>("'{}' is not there: name a question file or a text file", file);
  }
  hub::Query query;
  query.name = options.model;
  hub::DownloadObserver silent;
  const text::Tokenizer tokenizer = text::Tokenizer::load(
      hub::locate_model(query, {.tokenizer = true}, environment, silent).directory);
  const std::vector<std::string> texts = read_texts(file);
  Session session("tokenize", options.common, environment);
  session.report().line(fmt::format("{}: {} texts", file, texts.size()));

  ThreadPool one(1);
  Tokenizing work(tokenizer, texts);
  const Tokens tokens = work.tokens(one);
  if (work.tokens(session.threads()).of_text != tokens.of_text) {
    session.found_wrong("the tokens depend on the number of threads");
    session.report().add({{"name", "all threads"}, {"verified", false}});
    return session.finish();
  }
  const std::vector<std::function<void()>> works = {[&] { work.run(one); },
                                                    [&] { work.run(session.threads()); }};
  const std::vector<Samples> samples = measure(options.common.rounds, works);
  report(session, "one thread", 1, tokens, texts, samples[0]);
  report(session, "all threads", session.threads().num_threads(), tokens, texts, samples[1]);
  return session.finish();
}

}  // namespace

Bench add_tokenize(CLI::App& parent) {
  Flags flags(parent, "tokenize", "the tokenizer on the texts of a file");
  auto options = std::make_shared<TokenizeOptions>();
  options->common.add_to(flags);
  flags.text("--model_name_or_path,--model", options->model,
             "whose tokenizer: a directory, or a name in the Hugging Face cache",
             Flags::Need::kRequired);
  flags.text("file", options->file,
             fmt::format("question file (.json, .jsonl), or text line by line; not given: {}",
                         kDefaultFile));
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
