// `tandem bench predict`: texts per second of a trained model, and the time of a request by its
// number of texts. A request goes from texts to labels or embeddings, as in `tandem predict`,
// `tandem embed` and `tandem serve`; reading the model is not measured.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <memory>

#include "apps/answering/embedding.h"
#include "apps/answering/labeling.h"
#include "apps/bench/measure.h"
#include "apps/bench/options.h"
#include "apps/bench/report.h"
#include "apps/command/line_output.h"
#include "apps/command/text_lines.h"
#include "tandem/core/error.h"
#include "tandem/kernels/cpu_features.h"

namespace tandem::apps::bench {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kVerified = 16;       // texts that are computed alone and together
constexpr std::size_t kEnoughForP99 = 100;  // requests
constexpr std::size_t kMostTexts = 1 << 20;

struct PredictOptions {
  ModelOptions model;
  std::string file;
  std::vector<std::size_t> batches = {1, 8, 32};
  int rounds = 5;
  double seconds = 1;
  bool json = false;
};

// A model that gives each text a result, as bytes.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::vector<std::string> run(std::span<const std::string> texts) = 0;
  virtual const InferenceModel& model() const = 0;
};

void append_bytes(std::string& to, const void* bytes, std::size_t count) {
  to.append(static_cast<const char*>(bytes), count);
}

class LabelSubject final : public Subject {
 public:
  LabelSubject(const FoundModel& found, const Environment& environment)
      : labeller_(found, label_purpose(found), environment) {}

  std::vector<std::string> run(std::span<const std::string> texts) override {
    std::vector<LabelledText> named;
    for (const std::string& text : texts) named.push_back({"a text", text, {}});
    return labeller_.purpose() == Purpose::kTokens ? of_tokens(named) : of_texts(named);
  }
  const InferenceModel& model() const override { return labeller_.model(); }

 private:
  std::vector<std::string> of_texts(std::span<const LabelledText> texts) {
    std::vector<std::string> results;
    for (const auto& scores : labeller_.label_texts(texts, {})) {
      std::string& bytes = results.emplace_back();
      for (const LabelScore& one : scores) {
        append_bytes(bytes, &one.label, sizeof one.label);
        append_bytes(bytes, &one.score, sizeof one.score);
      }
    }
    return results;
  }
  std::vector<std::string> of_tokens(std::span<const LabelledText> texts) {
    std::vector<std::string> results;
    for (const auto& tokens : labeller_.label_tokens(texts, {})) {
      std::string& bytes = results.emplace_back();
      for (const LabelledToken& token : tokens)
        append_bytes(bytes, token.probabilities.data(),
                     token.probabilities.size() * sizeof(double));
    }
    return results;
  }

  Labeller labeller_;
};

class EmbeddingSubject final : public Subject {
 public:
  EmbeddingSubject(const FoundModel& found, const Environment& environment)
      : embedder_(found, {}, environment) {}

  std::vector<std::string> run(std::span<const std::string> texts) override {
    const std::vector<float> values = embedder_.embed(embedder_.prompt(), texts, {});
    std::vector<std::string> results(texts.size());
    const std::size_t size = embedder_.size();
    for (std::size_t i = 0; i < texts.size(); ++i)
      append_bytes(results[i], values.data() + i * size, size * sizeof(float));
    return results;
  }
  const InferenceModel& model() const override { return embedder_.model(); }

 private:
  Embedder embedder_;
};

std::unique_ptr<Subject> open_subject(const PredictOptions& options,
                                      const Environment& environment) {
  const FoundModel found(options.model, environment, /*sentence=*/true, models::all_families());
  const std::optional<Purpose> purpose = purpose_of(found);
  if (purpose == Purpose::kQuestions) {
    raise<ConfigError>(
        "--model: found a model of question answering, expected one that labels or embeds texts");
  }
  if (purpose) return std::make_unique<LabelSubject>(found, environment);
  return std::make_unique<EmbeddingSubject>(found, environment);
}

std::vector<std::string> read_texts(const std::string& path) {
  TextLines lines(path);
  std::vector<std::string> texts;
  for (std::string line; texts.size() < kMostTexts && lines.next(line);)
    if (!line.empty()) texts.push_back(line);
  if (texts.empty())
    raise<DataError>("--file: {} has no text; expected one on each line", lines.source());
  return texts;
}

double mean_tokens(const Subject& subject, std::span<const std::string> texts) {
  std::size_t tokens = 0;
  text::Encoding encoding;
  for (const std::string& text : texts) {
    encoding = {};
    subject.model().tokenizer().encode(text, encoding);
    tokens += encoding.ids.size();
  }
  return static_cast<double>(tokens) / static_cast<double>(texts.size());
}

// Whether the results of texts are the same bits alone and together.
bool verify(Subject& subject, std::span<const std::string> texts) {
  const auto some = texts.first(std::min(texts.size(), kVerified));
  const std::vector<std::string> together = subject.run(some);
  for (std::size_t i = 0; i < some.size(); ++i)
    if (subject.run(some.subspan(i, 1)).front() != together[i]) return false;
  return true;
}

// Requests of one size.
struct Series {
  std::size_t batch = 1;
  std::size_t next = 0;                // first text of the next request
  std::vector<double> rates = {};      // texts per second of each round
  std::vector<double> latencies = {};  // seconds of each request
};

// Requests of `series` for `seconds`, at least one. They go round through the texts.
void run_round(Subject& subject, std::span<const std::string> texts, double seconds,
               Series& series) {
  double passed = 0;
  std::size_t done = 0;
  std::vector<std::string> request;
  do {
    request.clear();
    for (std::size_t i = 0; i < series.batch; ++i)
      request.push_back(texts[series.next++ % texts.size()]);
    series.latencies.push_back(seconds_of([&] { subject.run(request); }));
    passed += series.latencies.back();
    done += request.size();
  } while (passed < seconds);
  series.rates.push_back(static_cast<double>(done) / passed);
}

void report_series(Report& report, const Series& series) {
  const Statistics rate = statistics(series.rates);
  const double p50 = percentile(series.latencies, 50);
  const bool enough = series.latencies.size() >= kEnoughForP99;
  const double p99 = percentile(series.latencies, 99);
  report.line(fmt::format(
      "requests of {:3}: {:8.1f} texts/s ({:.1f} – {:.1f}), p50 {:.2f} ms, p99 {}, {} requests",
      series.batch, rate.median, rate.min, rate.max, 1e3 * p50,
      enough ? fmt::format("{:.2f} ms", 1e3 * p99)
             : fmt::format("unknown: fewer than {} requests", kEnoughForP99),
      series.latencies.size()));
  report.add({{"name", fmt::format("batch {}", series.batch)},
              {"batch", series.batch},
              {"verified", true},
              {"unit", "texts/s"},
              {"rate", to_json(rate)},
              {"requests", series.latencies.size()},
              {"p50_seconds", p50},
              {"p99_seconds", enough ? ordered_json(p99) : ordered_json()}});
}

int run(const PredictOptions& options, const Environment& environment) {
  const std::vector<std::string> texts = read_texts(options.file);
  const std::unique_ptr<Subject> subject = open_subject(options, environment);
  print_warnings(subject->model());
  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
  LineOutput output(STDOUT_FILENO);
  Report report(output, options.json, "predict",
                {{"cpu", kernels::CpuFeatures::detect().describe()},
                 {"threads", subject->model().num_threads()},
                 {"bf16", options.model.bf16},
                 {"texts", texts.size()},
                 {"mean_tokens", std::round(10 * mean_tokens(*subject, texts)) / 10},
                 {"rounds", options.rounds}});
  if (!verify(*subject, texts)) {
    report.line("WRONG: the result of a text depends on the texts of its request");
    report.add({{"name", "predict"}, {"verified", false}});
    report.finish();
    return kExitBug;
  }
  std::vector<Series> all;
  for (const std::size_t batch : options.batches) all.push_back({.batch = batch});
  for (Series& series : all) {  // memory for the largest request, not measured
    Series warm_up{.batch = series.batch};
    run_round(*subject, texts, 0, warm_up);
  }
  for (int round = 0; round < options.rounds; ++round)
    for (Series& series : all) run_round(*subject, texts, options.seconds, series);
  for (const Series& series : all) report_series(report, series);
  report.finish();
  return 0;
}

}  // namespace

Bench add_predict(CLI::App& parent) {
  Flags flags(parent, "predict", "texts per second of a trained model, and times of requests");
  auto options = std::make_shared<PredictOptions>();
  add_model_flags(flags.app(), options->model);
  flags.text("--file", options->file, "file with a text on each line; empty ones are left out",
             Flags::Need::kRequired);
  flags.numbers("--batch", options->batches,
                "texts of a request, separated by commas (default: 1,8,32)", 1, 4096);
  flags.number("--rounds", options->rounds, "rounds, which alternate between sizes of requests", 1,
               1000);
  flags.number("--seconds", options->seconds, "seconds of a size of requests in a round", 0.0,
               3600.0);
  flags.boolean("--json", options->json, "print one JSON object");
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
