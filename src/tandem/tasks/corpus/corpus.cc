#include "tandem/tasks/corpus/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/random_bits.h"
#include "tandem/tasks/corpus/piece_builder.h"
#include "tandem/tasks/corpus/text_rows.h"
#include "tandem/tasks/feature_maker.h"

namespace tandem::corpus {
namespace {

namespace fs = std::filesystem;
using tasks::FeatureCache;
using tasks::FeatureFileWriter;

// The files and rows of a part, and how many rows the files have where that is known.
struct Part {
  std::string_view name;
  std::span<const fs::path> files;
  RowRange range = {};
  std::optional<std::uint64_t> num_rows = std::nullopt;
};

// Data read into a Corpus, and content of its file.
struct CorpusSet {
  Corpus corpus;
  std::vector<std::string> columns;  // columns of the files with columns

  template <class Set, class Visit>
  static void each_field(Set& set, Visit&& visit) {
    TextPieces::each_field(set.corpus.validation, visit);
    TextPieces::each_field(set.corpus.train, visit);
    visit(set.columns);
  }
};

std::string first_name(std::span<const fs::path> files) {
  return files.size() == 1
             ? files.front().string()
             : fmt::format("{} and {} more", files.front().string(), files.size() - 1);
}

std::string length_text(std::size_t tokens) {
  return tokens == text::Tokenizer::kUnlimited ? "any length" : fmt::format("{} tokens", tokens);
}

class CorpusReader {
 public:
  CorpusReader(const tasks::DataParts& parts, const CorpusOptions& options,
               const text::Tokenizer& tokenizer)
      : parts_(parts),
        options_(options),
        pieces_{.max_seq_length = options.max_seq_length,
                .line_by_line = options.line_by_line,
                .blocks = options.blocks},
        tokenizer_(tokenizer),
        maker_(parts, options.preprocessing_num_workers, options.overwrite_cache) {}

  Corpus read() {
    CorpusSet set = read_set();
    log(set);
    finish("train", set.corpus.train, options_.max_train_samples, parts_.stages.train);
    finish("validation", set.corpus.validation, options_.max_eval_samples, parts_.stages.eval);
    return std::move(set.corpus);
  }

 private:
  bool splits_train() const { return parts_.files.validation.empty(); }

  CorpusSet read_set() {
    const std::uint64_t bytes =
        tasks::size_of(parts_.files.train) + tasks::size_of(parts_.files.validation);
    if (bytes < FeatureCache::kMinDataBytes) return make(nullptr);
    if (maker_.cache().enabled()) {
      return maker_.cache().get_file<CorpusSet>(
          [&] { return key(); },
          [&](const fs::path& path, std::string_view key) { write(path, key, bytes); });
    }
    const fs::path path = fs::path(parts_.environment.get("TMPDIR").value_or("/tmp")) /
                          fmt::format("tandem-corpus-{:016x}", random_bits());
    write(path, "", bytes);
    auto set = tasks::read_feature_file<CorpusSet>(path, "");
    fs::remove(path);  // the mapping stays
    if (!set) raise<IoError>("the temporary file '{}' was removed", path.string());
    return *std::move(set);
  }

  std::string key() const {
    return fmt::format(
        "{}\n{}{}max_seq_length: {}\nline_by_line: {}\nvalidation: {} %\n"
        "stages: {} {}\n",
        form(), tasks::content_key("train", parts_.files.train),
        tasks::content_key("validation", parts_.files.validation), pieces_.max_seq_length,
        pieces_.line_by_line, splits_train() ? options_.validation_split_percentage : 0,
        parts_.stages.train, parts_.stages.eval);
  }

  // Names what else the pieces depend on.
  std::string_view form() const {
    if (!options_.blocks) return "masked_language";
    return options_.line_breaks == LineBreaks::kKept ? "causal_language, line breaks"
                                                     : "causal_language";
  }

  void write(const fs::path& path, std::string_view key, std::uint64_t bytes) {
    try {
      FeatureFileWriter file(path, key);
      const CorpusSet set = make(&file);
      tasks::CollectedFields columns;
      columns.add(set.columns);
      file.append(columns.fields().front());
      file.end_field();
      file.publish();
    } catch (const IoError& error) {
      raise<IoError>(
          "{}; the tokens of a corpus take about as many bytes on disk as its {} MB of text: free "
          "some space, or set TANDEM_FEATURE_CACHE to a folder on another disk",
          error.what(), bytes / 1'000'000);
    }
  }

  // The parts in the order of the file's fields.
  CorpusSet make(FeatureFileWriter* file) {
    const hub::DatasetFiles& files = parts_.files;
    Part train{.name = "train", .files = files.train, .num_rows = files.train_rows};
    Part validation{
        .name = "validation", .files = files.validation, .num_rows = files.validation_rows};
    if (splits_train()) {
      if (!train.num_rows) train.num_rows = TextRows(files.train).count();
      const SplitRows split = split_rows(*train.num_rows, options_.validation_split_percentage);
      validation = train;
      validation.range = split.validation;
      train.range = split.train;
    }
    // The column that the training part has, if anything is trained.
    const std::string column =
        TextRows(parts_.stages.train ? train.files : validation.files).column();
    CorpusSet set;
    if (!column.empty()) set.columns = {column};
    set.corpus.validation = make_part(validation, parts_.stages.eval, column, file);
    set.corpus.train = make_part(train, parts_.stages.train, column, file);
    return set;
  }

  TextPieces make_part(const Part& part, bool wanted, const std::string& column,
                       FeatureFileWriter* file) {
    PieceOptions pieces = pieces_;
    pieces.part = part.name;
    PieceStore store(tokenizer_, pieces, file);
    if (wanted && part.range.begin < part.range.end) {
      TextRows rows(part.files, column, options_.line_breaks);
      const std::uint64_t seen =
          add_rows(rows, part.range, tokenizer_, pieces, maker_.threads(), store);
      const std::uint64_t expected = std::min(part.range.end, part.num_rows.value_or(seen));
      if (seen != expected) {
        raise<DataError>(
            "data file '{}': found {} rows, expected {}: the file was changed, or is not complete",
            part.files.front().string(), seen, expected);
      }
    }
    return store.finish();
  }

  void log(const CorpusSet& set) {
    parts_.log.fact("columns", set.columns.empty()
                                   ? "texts are the lines of the files"
                                   : fmt::format("texts from \"{}\"", set.columns.front()));
    const auto report_part = [&](std::string_view part, std::span<const fs::path> files,
                                 const TextPieces& pieces) {
      parts_.log.fact(part, fmt::format("{}: {}", first_name(files), describe(pieces)));
    };
    if (parts_.stages.train) report_part("train", parts_.files.train, set.corpus.train);
    if (parts_.stages.eval) {
      report_part("validation", splits_train() ? parts_.files.train : parts_.files.validation,
                  set.corpus.validation);
    }
    maker_.log_notes("cache");
  }

  std::string describe(const TextPieces& pieces) const {
    const PieceCounts& counts = pieces.counts();
    std::string text = fmt::format("{} rows, {} {} of {}{} tokens", counts.rows, pieces.size(),
                                   options_.blocks ? "blocks" : "pieces",
                                   pieces_.line_by_line ? "up to " : "", pieces_.max_seq_length);
    if (counts.blank_rows > 0) text += fmt::format(", {} blank rows left out", counts.blank_rows);
    if (counts.cut_rows > 0) text += fmt::format(", {} rows cut", counts.cut_rows);
    if (counts.dropped_tokens > 0)
      text += fmt::format(", {} tokens dropped", counts.dropped_tokens);
    return text;
  }

  // Advice for a part without pieces.
  std::string advice(std::string_view part, const PieceCounts& counts) const {
    if (counts.rows == 0 && splits_train()) {
      return fmt::format("pass --validation_file, or a {} --validation_split_percentage (found {})",
                         part == "validation" ? "larger" : "smaller",
                         options_.validation_split_percentage);
    }
    if (options_.line_by_line) return "every row is blank; pass rows with text";
    if (options_.blocks) return "pass more text, or a smaller --block_size";
    return "pass more text, a smaller --max_seq_length, or --line_by_line";
  }

  void finish(std::string_view part, TextPieces& pieces,
              const std::optional<std::int64_t>& max_samples, bool wanted) const {
    if (!wanted) return;
    if (pieces.size() == 0) {
      raise<DataError>("the {} part: found no {} of {}{} tokens in {} rows; {}", part,
                       options_.blocks ? "block" : "piece", options_.line_by_line ? "up to " : "",
                       pieces.max_seq_length(), pieces.counts().rows,
                       advice(part, pieces.counts()));
    }
    if (max_samples) {
      pieces = pieces.first(static_cast<std::uint64_t>(std::max<std::int64_t>(0, *max_samples)));
    }
  }

  const tasks::DataParts& parts_;
  const CorpusOptions& options_;
  const PieceOptions pieces_;
  const text::Tokenizer& tokenizer_;
  tasks::FeatureMaker maker_;
};

}  // namespace

void check_corpus_source(const tasks::DataSource& source, const tasks::Stages& stages,
                         std::string_view evaluation_flag) {
  tasks::check_data_source(source, {.train = stages.train}, evaluation_flag,
                           text_file_extensions());
  if (!stages.eval || source.dataset_name || source.validation_file || source.train_file) return;
  raise<ConfigError>("{} needs --validation_file, a --train_file to split, or --dataset_name",
                     evaluation_flag);
}

hub::DatasetFiles find_corpus_files(const tasks::DataSource& source, const tasks::Stages& stages,
                                    const hub::ModelArguments& model,
                                    const Environment& environment,
                                    hub::DownloadObserver& downloads) {
  hub::DatasetFiles files = tasks::find_data_files(source, {.train = stages.train}, model,
                                                   environment, downloads, text_file_extensions());
  if (stages.eval && files.validation.empty() && files.train.empty()) {
    raise<ConfigError>(
        "--do_eval requires a data file: found neither a validation part nor a training part to "
        "split; pass --validation_file");
  }
  return files;
}

std::size_t choose_max_seq_length(std::optional<std::int64_t> given, std::size_t tokenizer_length,
                                  tasks::StartLog& log) {
  constexpr std::size_t kMost = 1024;
  if (given) {
    const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(0, *given));
    if (wanted <= tokenizer_length) return wanted;
    log.warning(fmt::format(
        "max_seq_length ({}) is larger than model_max_length of the tokenizer ({}): using {}",
        wanted, tokenizer_length, tokenizer_length));
    return tokenizer_length;
  }
  if (tokenizer_length <= kMost) return tokenizer_length;
  log.warning(fmt::format(
      "the tokenizer allows {}: using max_seq_length {}; pass --max_seq_length for longer pieces",
      length_text(tokenizer_length), kMost));
  return kMost;
}

std::size_t choose_block_size(std::optional<std::int64_t> given, std::size_t tokenizer_length,
                              std::size_t model_positions, tasks::StartLog& log) {
  constexpr std::size_t kMost = 1024;
  if (!given) {
    if (tokenizer_length <= model_positions) return tokenizer_length;
    const std::size_t chosen = std::min(kMost, model_positions);
    log.warning(fmt::format(
        "the tokenizer allows {}, and the model {}: using block_size {}; pass --block_size for "
        "other blocks",
        length_text(tokenizer_length), length_text(model_positions), chosen));
    return chosen;
  }
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(0, *given));
  const std::size_t chosen = std::min(wanted, tokenizer_length);
  if (chosen < wanted) {
    log.warning(fmt::format(
        "block_size ({}) is larger than model_max_length of the tokenizer ({}): using {}", wanted,
        tokenizer_length, chosen));
  }
  if (chosen > model_positions) {
    raise<ConfigError>(
        "--block_size: found {}, expected at most {}, max_position_embeddings of the model", chosen,
        model_positions);
  }
  return chosen;
}

Corpus read_corpus(const tasks::DataParts& parts, const CorpusOptions& options,
                   const text::Tokenizer& tokenizer) {
  return CorpusReader(parts, options, tokenizer).read();
}

CorpusOptions corpus_options(const CorpusArguments& arguments, std::size_t max_seq_length) {
  return {.max_seq_length = max_seq_length,
          .validation_split_percentage =
              static_cast<std::uint32_t>(arguments.validation_split_percentage),
          .max_train_samples = arguments.max_train_samples,
          .max_eval_samples = arguments.max_eval_samples,
          .preprocessing_num_workers = arguments.preprocessing_num_workers,
          .overwrite_cache = arguments.overwrite_cache};
}

void complete_results(nlohmann::ordered_json& metrics) {
  const auto found = metrics.find("eval_perplexity");
  if (found != metrics.end()) metrics["perplexity"] = *found;
}

tasks::LeadingMetrics leading_metrics() {
  return {.metrics = {{"perplexity", "Perplexity", tasks::MetricUnit::kNumber,
                       /*less_is_better=*/true},
                      {"accuracy", "Accuracy", tasks::MetricUnit::kFraction},
                      tasks::evaluation_loss_metric()}};
}

}  // namespace tandem::corpus
