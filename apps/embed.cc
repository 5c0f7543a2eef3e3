// `tandem embed --model DIR|NAME`: embeddings of texts by a bi-encoder.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "apps/answering/embedding.h"
#include "apps/answering/embedding_job.h"
#include "apps/answering/embedding_output.h"
#include "apps/answering/embedding_spool.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/count_line.h"
#include "apps/command/line_output.h"
#include "apps/command/text_lines.h"
#include "apps/command/version.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;

// Texts that are read, computed and written together: sorted by length among themselves.
constexpr std::size_t kTextsAtOnce = 1024;

struct Options {
  ModelOptions model;
  EmbedOptions embed;
  std::vector<std::string> texts;
  std::string file;
  std::string output = "-";
  EmbeddingPrecision precision = EmbeddingPrecision::kFloat32;
  std::string calibration;
  bool json = false;

  bool scales() const {
    return precision == EmbeddingPrecision::kInt8 || precision == EmbeddingPrecision::kUint8;
  }
};

const std::map<std::string, EmbeddingPrecision> kPrecisions = {
    {"float32", EmbeddingPrecision::kFloat32},
    {"int8", EmbeddingPrecision::kInt8},
    {"uint8", EmbeddingPrecision::kUint8},
    {"binary", EmbeddingPrecision::kBinary},
    {"ubinary", EmbeddingPrecision::kUbinary}};

void add_precision(CLI::App& app, Options& options, std::string& precision) {
  app.add_option("--precision", precision,
                 "what is kept of a value: float32; a byte, by which its component's range is cut "
                 "into 255 steps (int8, uint8); or its sign, eight of them in a byte (binary, "
                 "ubinary)")
      ->check(CLI::IsMember({"float32", "int8", "uint8", "binary", "ubinary"}))
      ->capture_default_str();
  app.add_option("--calibration", options.calibration,
                 "file with a text on each line, whose embeddings give the ranges of int8 and "
                 "uint8; default: the texts themselves, whose rows are then written at the end");
}

bool parse_options(const std::vector<std::string>& words, Options& options) {
  CLI::App app(
      "Writes the embedding of each text: one vector of numbers, near those of texts of similar "
      "meaning. Takes models of sentence-transformers and bare encoders, whose tokens it averages.",
      "tandem embed");
  add_model_flags(app, options.model);
  auto* texts = app.add_option("text", options.texts, "the texts, each a word of the command line");
  app.add_option("--file", options.file,
                 "file with a text on each line, empty ones included; -: standard input, the "
                 "default without texts")
      ->excludes(texts);
  app.add_option("--output", options.output,
                 "file to write: a NumPy array [texts, values] if its name ends with .npy, else "
                 "JSON lines; -: standard output")
      ->capture_default_str();
  app.add_flag("--json", options.json,
               "JSON lines on standard output, where a pipe or a file gets a NumPy array");
  auto* prompt = app.add_option("--prompt", options.embed.prompt, "text in front of every text");
  app.add_option("--prompt_name", options.embed.prompt_name,
                 "one of the model's prompts (query, document …); default: that of the model")
      ->excludes(prompt);
  app.add_option("--max_seq_length", options.embed.max_seq_length,
                 "tokens of a text, special ones included; longer texts are cut (default: the "
                 "model's own length)")
      ->check(CLI::Range(3, 1 << 20));
  app.add_flag("--normalize", options.embed.normalize,
               "scale every embedding to length 1, whatever the model's modules do");
  app.add_option("--truncate_dim", options.embed.truncate_dim,
                 "keep the first N values, for models trained with Matryoshka losses")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  std::string precision = "float32";
  add_precision(app, options, precision);
  if (!parse_command(app, words)) return false;
  options.precision = kPrecisions.at(precision);
  if (!options.calibration.empty() && !options.scales()) {
    raise<ConfigError>("--calibration: --precision {} has no ranges; use --precision int8 or uint8",
                       precision);
  }
  if (options.calibration == "-" && options.texts.empty() &&
      (options.file.empty() || options.file == "-"))
    raise<ConfigError>("--calibration -: standard input has the texts; give either a file");
  return true;
}

// --- the texts ---

class Texts {
 public:
  explicit Texts(const Options& options)
      : given_(options.texts), path_(options.file.empty() ? "-" : options.file) {
    if (given_.empty()) lines_.emplace(path_);
  }
  explicit Texts(const std::string& path) : path_(path), lines_(std::in_place, path) {}

  // The next texts, at most kTextsAtOnce; none: the end.
  std::vector<std::string> next() {
    if (!lines_) return std::exchange(given_, {});
    std::vector<std::string> texts;
    std::string line;
    while (texts.size() < kTextsAtOnce && lines_->next(line)) texts.push_back(line);
    return texts;
  }
  void skip(std::size_t count) {
    std::string line;
    while (lines_ && lines_->count() < count && lines_->next(line)) {
    }
  }
  std::string source() const { return lines_ ? lines_->source() : "the command line"; }

  // Identifies the input; empty if two inputs cannot be distinguished.
  std::string identity() const { return !lines_ || path_ == "-" ? "" : file_version(path_); }

 private:
  std::vector<std::string> given_;
  std::string path_;
  std::optional<TextLines> lines_;
};

// --- the output ---

class Output {
 public:
  virtual ~Output() = default;
  virtual std::size_t rows_before() const { return 0; }  // rows of an earlier process
  virtual void write(std::span<const std::string> texts, std::span<const float> embeddings) = 0;
  virtual void commit() {}
  // Before write(), where the format lacks them.
  virtual void set_ranges(const ValueRanges&) {}
};

void write_whole(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) throw OutputClosed();
    if (written < 0) throw io_error("cannot write", "standard output", errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// {"text": …, "embedding": […]}, or the bytes of --precision. A file appears when it is whole. Its
// lines are in PATH.partial until then; an error removes that file.
class JsonOutput final : public Output {
 public:
  JsonOutput(const std::string& path, EmbeddingFormat format) : format_(std::move(format)) {
    if (path == "-") {
      output_ = std::make_unique<LineOutput>(STDOUT_FILENO);
      return;
    }
    std::error_code ignored;
    const bool is_device =
        std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
    if (!is_device) path_ = path;
    const std::string written = is_device ? path : partial();
    output_ = std::make_unique<std::ofstream>(written, std::ios::trunc);
    if (!*output_) throw io_error("cannot write", written, errno);
  }
  ~JsonOutput() override {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(partial(), ignored);
  }

  void write(std::span<const std::string> texts, std::span<const float> embeddings) override {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto embedding = embeddings.subspan(i * format_.size, format_.size);
      ordered_json json = {{"text", texts[i]}};
      if (format_.precision == EmbeddingPrecision::kFloat32) {
        json["embedding"] = embedding;
      } else {
        std::string bytes;
        append_embeddings(format_, embedding, bytes);
        for (const char byte : bytes)
          json["embedding"].push_back(is_signed(format_.precision)
                                          ? static_cast<signed char>(byte)
                                          : static_cast<unsigned char>(byte));
      }
      *output_ << python_json(json) << '\n';
    }
    output_->flush();
    if (!*output_) throw io_error("cannot write", "the output", errno);
  }
  void commit() override {
    if (path_.empty()) return;
    std::error_code error;
    std::filesystem::rename(partial(), path_, error);
    if (error) throw io_error("cannot write", path_, error.value());
  }
  void set_ranges(const ValueRanges& ranges) override { format_.ranges = ranges; }

 private:
  std::string partial() const { return path_ + ".partial"; }

  std::unique_ptr<std::ostream> output_;
  std::string path_;  // path of a regular file; else empty
  EmbeddingFormat format_;
};

// A pipe gets the number of rows before the rows, so all are kept until the end.
class NpyPipe final : public Output {
 public:
  explicit NpyPipe(EmbeddingFormat format) : format_(std::move(format)) {}

  void write(std::span<const std::string> texts, std::span<const float> embeddings) override {
    rows_ += texts.size();
    append_embeddings(format_, embeddings, bytes_);
  }
  void commit() override {
    write_whole(STDOUT_FILENO, npy_header(format_.precision, rows_, format_.size));
    write_whole(STDOUT_FILENO, bytes_);
  }
  void set_ranges(const ValueRanges& ranges) override { format_.ranges = ranges; }

 private:
  EmbeddingFormat format_;
  std::size_t rows_ = 0;
  std::string bytes_;
};

// Keeps all on disk until the ranges are known.
class WaitingOutput final : public Output {
 public:
  WaitingOutput(std::unique_ptr<Output> output, std::size_t size)
      : output_(std::move(output)), size_(size), spool_(size) {}

  void write(std::span<const std::string> texts, std::span<const float> embeddings) override {
    ranges_.add(embeddings, size_);
    spool_.append(texts, embeddings);
  }
  void commit() override {
    output_->set_ranges(ranges_);
    spool_.replay([&](std::span<const std::string> texts, std::span<const float> embeddings) {
      output_->write(texts, embeddings);
    });
    output_->commit();
  }

 private:
  std::unique_ptr<Output> output_;
  std::size_t size_;
  EmbeddingSpool spool_;
  ValueRanges ranges_;
};

class NpyOutput final : public Output {
 public:
  NpyOutput(const std::string& path, const EmbeddingFormat& format, const std::string& job)
      : file_(path, format, job) {}

  std::size_t rows_before() const override { return file_.rows(); }
  void write(std::span<const std::string>, std::span<const float> embeddings) override {
    file_.append(embeddings);
  }
  void commit() override { file_.commit(); }

 private:
  NpyFile file_;
};

// Everything that decides the bytes of an output, in addition to the precision: one line each.
std::string job_text(const Options& options, const Embedder& embedder, const FoundModel& found,
                     const Texts& texts) {
  const std::string input = texts.identity();
  const std::string calibration =
      options.calibration.empty() ? "none" : Texts(options.calibration).identity();
  if (input.empty() || calibration.empty())
    return fmt::format("process {}\n", ::getpid());  // never continued
  return embedder_job(found, embedder, embedder.prompt(), options.model.bf16) +
         fmt::format("kernels={}\ninput={}\nnormalize={}\ncalibration={}\n", kernels_text(), input,
                     options.embed.normalize, calibration);
}

std::unique_ptr<Output> open_output(const Options& options, const std::string& job,
                                    const EmbeddingFormat& format) {
  const bool standard = options.output == "-";
  if (!standard && options.output.ends_with(".npy"))
    return std::make_unique<NpyOutput>(options.output, format, job);
  std::unique_ptr<Output> output;
  if (standard && !options.json && options.texts.empty() && ::isatty(STDOUT_FILENO) == 0)
    output = std::make_unique<NpyPipe>(format);
  else
    output = std::make_unique<JsonOutput>(options.output, format);
  if (!format.lacks_ranges()) return output;
  return std::make_unique<WaitingOutput>(std::move(output), format.size);
}

// --- the ranges of int8 and uint8 ---

constexpr std::size_t kEnoughForRanges = 100;  // as sentence-transformers'

void warn_of_few(std::size_t texts, std::string_view whose) {
  if (texts >= kEnoughForRanges) return;
  fmt::print(stderr,
             "tandem: warning: the ranges are those of {} text{}{}; give --calibration a file of "
             "{} texts or more\n",
             texts, texts == 1 ? "" : "s", whose, kEnoughForRanges);
}

ValueRanges calibrate(const Options& options, Embedder& embedder) {
  ValueRanges ranges;
  if (options.calibration.empty()) return ranges;
  Texts texts(options.calibration);
  std::size_t done = 0;
  try {
    for (auto some = texts.next(); !some.empty(); some = texts.next()) {
      ranges.add(embedder.embed(some, done + 1), embedder.size());
      done += some.size();
    }
  } catch (const DataError& error) {
    raise<DataError>("--calibration: {}", error.what());
  }
  if (done == 0)
    raise<DataError>("--calibration: {} has no text in it; expected one on each line",
                     texts.source());
  warn_of_few(done, " of --calibration");
  return ranges;
}

}  // namespace

int embed(const Invocation& invocation) {
  Options options;
  if (!parse_options(invocation.words, options)) return 0;
  const FoundModel found(options.model, invocation.environment, /*sentence=*/true);
  Embedder embedder(found, options.embed, invocation.environment);
  print_warnings(embedder.model());
  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
  Texts texts(options);
  const EmbeddingFormat format{options.precision, embedder.size(), calibrate(options, embedder)};
  const auto output = open_output(options, job_text(options, embedder, found, texts), format);
  const std::size_t before = output->rows_before();
  if (before > 0)
    fmt::print(stderr, "tandem embed: {} has {} texts already; resuming after them\n",
               options.output, before);
  texts.skip(before);
  CountLine progress("tandem embed", "texts", before);
  std::size_t done = before;
  for (auto some = texts.next(); !some.empty(); some = texts.next()) {
    output->write(some, embedder.embed(some, done + 1));
    done += some.size();
    progress.show(done);
  }
  if (done == 0)
    raise<DataError>("{} has no text in it; expected one on each line", texts.source());
  if (format.lacks_ranges()) warn_of_few(done, "");
  output->commit();
  if (options.texts.empty()) progress.finish(done);
  return 0;
}

}  // namespace tandem::apps
