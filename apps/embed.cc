// `tandem embed --model DIR|NAME`: embeddings of texts by a bi-encoder.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "apps/answering/embedding.h"
#include "apps/answering/embedding_job.h"
#include "apps/answering/embedding_output.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/count_line.h"
#include "apps/command/text_lines.h"
#include "apps/command/text_output.h"
#include "apps/command/text_rows.h"
#include "apps/command/version.h"
#include "apps/embed_output.h"
#include "apps/embed_share.h"
#include "tandem/comm/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/job/rank_threads.h"
#include "tandem/job/shared_error.h"
#include "tandem/job/world.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::apps {
namespace {

struct EmbedFlags {
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

void add_precision(CLI::App& app, EmbedFlags& options, std::string& precision) {
  app.add_option("--precision", precision,
                 "what is kept of a value: float32; a byte, by which its component's range is cut "
                 "into 255 steps (int8, uint8); or its sign, eight of them in a byte (binary, "
                 "ubinary)")
      ->check(CLI::IsMember({"float32", "int8", "uint8", "binary", "ubinary"}))
      ->capture_default_str();
  app.add_option("--calibration", options.calibration,
                 "file like --file, whose embeddings give the ranges of int8 and uint8; "
                 "default: the texts themselves, whose rows are then written at the end");
}

// Where the texts come from, and where their embeddings go.
void add_texts(CLI::App& app, EmbedFlags& options) {
  auto* texts = app.add_option("text", options.texts, "the texts, each a word of the command line");
  app.add_option("--file", options.file,
                 "file with a text on each line, empty ones included, or a .jsonl of objects with "
                 "text, perhaps title; also .gz or .zst; -: standard input, the default without "
                 "texts")
      ->excludes(texts);
  app.add_option(
         "--output", options.output,
         "file to write: a NumPy array [texts, values] if its name ends with .npy, a Parquet "
         "file if it ends with .parquet, else JSON lines; -: standard output")
      ->capture_default_str();
  app.add_flag("--json", options.json,
               "JSON lines on standard output, where a pipe or a file gets a NumPy array");
}

bool parse_options(const std::vector<std::string>& words, EmbedFlags& options) {
  CLI::App app(
      "Writes the embedding of each text: one vector of numbers, near those of texts of similar "
      "meaning. Takes models of sentence-transformers, and bare ones, pooled by their mean or, of "
      "decoders, their last token.",
      "tandem embed");
  add_model_flags(app, options.model);
  add_texts(app, options);
  auto* prompt = app.add_option("--prompt", options.embed.prompt, "text in front of every text");
  app.add_option("--prompt_name", options.embed.prompt_name,
                 "one of the model's prompts (query, document …); default: that of the model")
      ->excludes(prompt);
  app.add_option("--max_seq_length", options.embed.max_seq_length,
                 "tokens of a text, special ones included; longer texts are cut (default: the "
                 "model's own length)")
      ->check(whole_number_in(3, 1 << 20));
  app.add_flag("--normalize", options.embed.normalize,
               "scale every embedding to length 1, whatever the model's modules do");
  app.add_option("--truncate_dim", options.embed.truncate_dim,
                 "keep the first N values, for models trained with Matryoshka losses")
      ->check(whole_number_in(1, 1 << 20))
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
  explicit Texts(const EmbedFlags& options)
      : given_(options.texts), path_(options.file.empty() ? "-" : options.file) {
    if (given_.empty()) lines_.emplace(path_);
  }
  explicit Texts(const std::string& path) : path_(path), lines_(std::in_place, path) {}

  // The next texts, at most `count`; none: the end. Texts of the command line come at once.
  std::vector<std::string> next(std::size_t count = kTextsAtOnce) {
    if (!lines_) return std::exchange(given_, {});
    std::vector<std::string> texts;
    std::string line;
    while (texts.size() < count && lines_->next(line)) texts.push_back(text_of(line));
    return texts;
  }
  void skip(std::size_t count) {
    std::string line;
    while (lines_ && lines_->count() < count && lines_->next(line)) {
    }
  }
  // Texts of the whole input, which is read for that.
  static std::size_t count(const std::string& path) {
    TextLines lines(path);
    std::string line;
    while (lines.next(line)) {
    }
    return lines.count();
  }
  std::string source() const { return lines_ ? lines_->source() : "the command line"; }

  TextNumbers numbers(std::size_t first) const {
    return {first, lines_ ? lines_->source() + ", line" : "text"};
  }

  // Identifies the input; empty for a stream and the command line, whose texts come once.
  std::string identity() const { return lines_ ? identity_of(path_) : ""; }
  // Throws IoError for a file that cannot be read.
  static std::string identity_of(const std::string& path) {
    if (path == "-" || is_stream(path)) return "";
    const TextLines opened(path);
    return file_version(path);
  }

 private:
  std::string text_of(const std::string& line) const {
    if (!has_text_rows(path_)) return line;
    try {
      return parse_text_row(line).text;
    } catch (const DataError& error) {
      raise<DataError>("{}, line {}: {}", lines_->source(), lines_->count(), error.what());
    }
  }

  std::vector<std::string> given_;
  std::string path_;
  std::optional<TextLines> lines_;
};

// --- the job ---

// Everything that decides the bytes of an output, in addition to the precision: one line each.
std::string job_text(const EmbedFlags& options, const Embedder& embedder, const FoundModel& found,
                     const Texts& texts) {
  const std::string input = texts.identity();
  const std::string calibration =
      options.calibration.empty() ? "none" : Texts::identity_of(options.calibration);
  if (input.empty() || calibration.empty())
    return fmt::format("process {}\n", ::getpid());  // never continued
  return embedder_job(found, embedder, embedder.prompt(), options.model.bf16) +
         fmt::format("kernels={}\ninput={}\nnormalize={}\ncalibration={}\n", kernels_text(), input,
                     options.embed.normalize, calibration);
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

ValueRanges calibrate(const EmbedFlags& options, Embedder& embedder) {
  ValueRanges ranges;
  if (options.calibration.empty()) return ranges;
  Texts texts(options.calibration);
  std::size_t done = 0;
  try {
    for (auto some = texts.next(); !some.empty(); some = texts.next()) {
      ranges.add(embedder.embed(embedder.prompt(), some, texts.numbers(done + 1)), embedder.size());
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

// --- ranks ---

// The ranks that a launcher started; a process without one is alone and has no communicator.
class Ranks {
 public:
  explicit Ranks(const Environment& environment) : environment_(environment) {
    if (!rendezvous::identify(environment).distributed()) return;
    if (environment.get("TANDEM_AGENT")) {
      raise<ConfigError>(
          "tandem embed: found the ranks of tandem run or torchrun with an agent, expected those "
          "of "
          "mpirun or srun");
    }
    trainer::TrainingArguments waits;
    waits.ddp_timeout = kLongestWait;
    waits.output_dir = "";
    job::WorldEvents events;
    events.on_failure = [](const std::string& message) {
      fmt::print(stderr, "tandem: {}\n", message);
      std::_Exit(CommError("").exit_code());
    };
    world_ = job::join_world(environment, waits, std::move(events));
    const job::RankThreads threads = job::threads_for_rank(environment, *world_->communicator);
    auto values = environment.values();
    values["OMP_NUM_THREADS"] = std::to_string(threads.count);
    environment_ = Environment(std::move(values));
  }

  comm::Communicator* communicator() const { return world_ ? world_->communicator.get() : nullptr; }
  // With the rank's number of threads.
  const Environment& environment() const { return environment_; }
  bool is_first() const { return !world_ || world_->communicator->rank() == 0; }
  int count() const { return world_ ? world_->communicator->size() : 1; }
  // Runs what all ranks do alike; an error of all of them is reported once.
  void run(const std::function<void()>& work) const {
    if (!world_) return work();
    job::run_with_shared_errors(*world_->communicator, work);
  }
  void close() const {
    if (world_) world_->communicator->close();
  }

 private:
  // Ranks wait for the slowest one. A dead one is noticed at once.
  static constexpr int kLongestWait = 7 * 24 * 3600;  // s

  Environment environment_;
  std::optional<job::World> world_;
};

void require_files(const EmbedFlags& options, const Texts& texts, int ranks) {
  if (ranks == 1) return;
  if (texts.identity().empty() || options.output == "-") {
    raise<ConfigError>(
        "found {} ranks and no file in {}, expected --file and --output with the names of files, "
        "because each rank reads its own lines",
        ranks, texts.identity().empty() ? "--file" : "--output");
  }
}

// Refuses an output that cannot be written before the model is read. Files that keep rows until the
// output is whole are in the same folder.
void require_output(const EmbedFlags& options) {
  namespace fs = std::filesystem;
  const std::string& output = options.output;
  std::error_code ignored;
  if (output == "-") return;
  require_other_file(output, "--file", options.file);
  require_other_file(output, "--calibration", options.calibration);
  require_written_format(output, std::array<std::string_view, 3>{".npy", ".parquet", ".jsonl"});
  if (fs::is_directory(output, ignored))
    raise<IoError>("--output {}: found a folder, expected the name of a file", output);
  if (is_stream(output)) return;
  const fs::path parent = fs::path(output).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  if (!fs::exists(folder, ignored)) {
    raise<IoError>("--output {}: the folder '{}' does not exist; create it first", output,
                   folder.native());
  }
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return;
  raise<IoError>("--output {}: cannot create a file in the folder '{}': {}; name another folder",
                 output, folder.native(), std::generic_category().message(errno));
}

// Whether the rows are kept in files beside the output until all are there. A .npy file of one rank
// resumes without.
bool keeps_rows(const EmbedFlags& options, const Texts& texts, int ranks) {
  if (ranks > 1) return true;
  return options.output != "-" && !is_npy(options.output) && !is_stream(options.output) &&
         !texts.identity().empty();
}

void note_resume(const std::string& output, std::size_t before) {
  if (before == 0) return;
  fmt::print(stderr, "tandem embed: {} has {} texts already; resuming after them\n", output,
             before);
}

// Everything that both ways of writing need.
struct Work {
  const EmbedFlags& options;
  Embedder& embedder;
  Texts& texts;
  const std::string& job;

  std::vector<float> embed(std::span<const std::string> some, std::size_t first) const {
    return embedder.embed(embedder.prompt(), some, texts.numbers(first));
  }
};

OutputOptions output_options(const EmbedFlags& options) {
  return {options.output, !options.json && options.texts.empty()};
}

void embed_at_once(const Work& work) {
  const EmbedFlags& options = work.options;
  const EmbeddingFormat format{options.precision, work.embedder.size(),
                               calibrate(options, work.embedder)};
  const auto output =
      open_output(output_options(options), work.job, format, work.embedder.threads());
  const std::size_t before = output->rows_before();
  note_resume(options.output, before);
  work.texts.skip(before);
  CountLine progress("tandem embed", "texts", before);
  std::size_t done = 0;
  for (auto some = work.texts.next(); !some.empty(); some = work.texts.next()) {
    output->write(some, work.embed(some, before + done + 1));
    done += some.size();
    progress.show(before + done);
  }
  if (before + done == 0)
    raise<DataError>("{} has no text in it; expected one on each line", work.texts.source());
  if (format.lacks_ranges()) warn_of_few(before + done, "");
  output->commit();
  if (options.texts.empty()) progress.finish(before + done);
}

// The lines of the own share.
void embed_share(const Work& work, const Ranks& ranks, EmbeddingShare& share) {
  const LineRange lines = share.lines();
  const std::size_t before = share.done();
  if (ranks.is_first()) note_resume(work.options.output, before);
  work.texts.skip(lines.begin + before);
  CountLine progress("tandem embed", "texts", before);
  std::size_t done = 0;
  while (before + done < lines.size()) {
    auto some = work.texts.next(std::min(kTextsAtOnce, lines.size() - before - done));
    if (some.empty()) raise<DataError>("{} has become shorter; run again", work.texts.source());
    share.append(work.embed(some, lines.begin + before + done + 1));
    done += some.size();
    if (ranks.is_first()) progress.show(before + done);
  }
  if (ranks.is_first()) progress.finish(before + done);
}

void write_output(const Work& work, std::size_t lines, EmbeddingShare& share) {
  const EmbedFlags& options = work.options;
  const EmbeddingFormat format{options.precision, work.embedder.size(),
                               calibrate(options, work.embedder)};
  if (format.lacks_ranges()) warn_of_few(lines, "");
  const auto output =
      open_output(output_options(options), work.job, format, work.embedder.threads());
  const std::size_t before = output->rows_before();
  Texts texts(options.file);
  texts.skip(before);
  share.collect(before, kTextsAtOnce, [&](std::span<const float> embeddings) {
    output->write(texts.next(embeddings.size() / format.size), embeddings);
  });
  output->commit();
}

// Ranks of different hosts may read different files, and other kernels round differently.
void check_equal(const Work& work, const Ranks& ranks, std::size_t lines) {
  if (ranks.communicator() == nullptr) return;
  const std::string own =
      fmt::format("{} lines, kernels {}, {} values", lines, kernels_text(), work.embedder.size());
  const auto all = all_gather_texts(*ranks.communicator(), own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    raise<ConfigError>("rank {} has {}, expected as rank 0: {}", rank, all[rank], all[0]);
  }
}

void embed_by_shares(const Work& work, const Ranks& ranks) {
  const std::size_t lines = Texts::count(work.options.file);
  check_equal(work, ranks, lines);
  if (lines == 0)
    raise<DataError>("{} has no text in it; expected one on each line", work.texts.source());
  EmbeddingShare share(work.options.output, work.embedder.size(), work.job, lines,
                       ranks.communicator());
  embed_share(work, ranks, share);
  if (ranks.is_first())
    write_output(work, lines, share);
  else
    share.collect(0, kTextsAtOnce, {});
  share.remove();
}

}  // namespace

int embed(const Invocation& invocation) {
  EmbedFlags options;
  if (!parse_options(invocation.words, options)) return 0;
  const Ranks ranks(invocation.environment);
  std::optional<FoundModel> found;
  std::optional<Embedder> embedder;
  std::optional<Texts> texts;
  std::string job;
  ranks.run([&] {
    require_output(options);
    found = find_bi_encoder(options.model, ranks.environment());
    embedder.emplace(*found, options.embed, ranks.environment());
    texts.emplace(options);
    require_files(options, *texts, ranks.count());
    job = job_text(options, *embedder, *found, *texts);
  });
  if (ranks.is_first()) print_warnings(embedder->model());
  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
  const Work work{options, *embedder, *texts, job};
  if (keeps_rows(options, *texts, ranks.count()))
    embed_by_shares(work, ranks);
  else
    embed_at_once(work);
  ranks.close();
  return 0;
}

}  // namespace tandem::apps
