#include "tandem/tasks/supervised/sample_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/read_rows.h"
#include "tandem/formats/compressed_file.h"
#include "tandem/tasks/encode_in_chunks.h"
#include "tandem/tasks/supervised/packing.h"
#include "tandem/tasks/supervised/sample_sequences.h"

namespace tandem::supervised {
namespace {

namespace fs = std::filesystem;

// Rows that are packed together: the batch of datasets' map().
constexpr std::uint64_t kPackedRows = 1000;

// The form of rows with these columns, and the columns that it reads.
struct Layout {
  RowForm form = RowForm::kText;
  std::vector<std::string> columns;
};

Layout layout_of(std::span<const std::string> names, const std::string& text_field) {
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has("prompt") && has("completion")) return {RowForm::kCompletion, {"prompt", "completion"}};
  for (const char* name : {"messages", "conversations"})
    if (has(name)) return {RowForm::kMessages, {name}};
  if (has(text_field)) return {RowForm::kText, {text_field}};
  raise<DataError>(
      "found the columns \"{}\", expected \"prompt\" and \"completion\", \"messages\", or \"{}\"; "
      "--dataset_text_field names a column of texts",
      fmt::join(names, "\", \""), text_field);
}

class SampleReader {
 public:
  SampleReader(const SampleOptions& options, const text::Tokenizer& tokenizer, ThreadPool& threads)
      : options_(options),
        tokenizer_(tokenizer),
        threads_(threads),
        sequences_(std::make_shared<SampleSequences>(options.max_length,
                                                     tokenizer.pad_token_id().value_or(0))) {}

  void add(const fs::path& path) {
    try {
      const MappedFile file = formats::map_uncompressed(path);
      const auto source = data::open_row_file(path, file.bytes());
      const std::vector<std::size_t> columns = columns_of(*source);
      for (formats::Table table; !is_full() && source->next(columns, table);)
        add_table(table, *source);
    } catch (const DataError& error) {
      raise<DataError>("data file '{}': {}", path.string(), error.what());
    }
  }

  Samples finish() {
    pack_rows();
    if (options_.packing != Packing::kNone) begins_.push_back(num_sequences());
    result_.samples = {.sequences = sequences_,
                       .begins = std::move(begins_),
                       .counts_first = options_.packing == Packing::kNone};
    return std::move(result_);
  }

 private:
  bool is_full() const {
    return options_.max_rows &&
           result_.counts.rows >=
               static_cast<std::uint64_t>(std::max<std::int64_t>(0, *options_.max_rows));
  }
  std::uint32_t num_sequences() const { return static_cast<std::uint32_t>(sequences_->size()); }

  std::vector<std::size_t> columns_of(const formats::TableSource& source) {
    const auto names = source.column_names();
    if (!layout_) {
      layout_ = layout_of(names, options_.text_field);
      result_.columns = layout_->columns;
    }
    std::vector<std::size_t> columns;
    for (const std::string& name : layout_->columns) {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end())
        raise<DataError>("found no column \"{}\", which the files before it have", name);
      columns.push_back(static_cast<std::size_t>(found - names.begin()));
    }
    return columns;
  }

  // The first rows decide whether they are texts or conversations.
  const RowEncoder& encoder_of(const formats::Table& table) {
    if (encoder_) return *encoder_;
    result_.conversations = is_conversation(table.columns[0]);
    encoder_.emplace(
        tokenizer_, EncoderOptions{.form = layout_->form,
                                   .conversations =
                                       result_.conversations || layout_->form == RowForm::kMessages,
                                   .completion_only = options_.completion_only.value_or(
                                       layout_->form == RowForm::kCompletion),
                                   .eos_token = options_.eos_token});
    return *encoder_;
  }

  void add_table(const formats::Table& table, const formats::TableSource& source) {
    const RowEncoder& encoder = encoder_of(table);
    std::size_t rows = table.num_rows;
    if (options_.max_rows)
      rows = std::min(rows, static_cast<std::size_t>(*options_.max_rows) - result_.counts.rows);
    const auto chunks = tasks::encode_in_chunks<std::vector<EncodedRow>>(
        rows, threads_, [&](std::size_t row) { return source.location(row); },
        [&](std::size_t row, text::Encoding& encoding, std::vector<EncodedRow>& chunk) {
          chunk.push_back(encoder.encode(table.columns, row, encoding));
        });
    for (const auto& chunk : chunks)
      for (const EncodedRow& row : chunk) add_row(row);
  }

  void add_row(const EncodedRow& row) {
    ++result_.counts.rows;
    result_.counts.changed_prompts += row.changed_prompt_tokens > 0;
    if (options_.packing == Packing::kNone) {
      add_sample(cut(row.tokens));
    } else {
      add_sequences(row.tokens);
      if (result_.counts.rows % kPackedRows == 0) pack_rows();
    }
  }

  std::span<const std::uint32_t> cut(std::span<const std::uint32_t> tokens) {
    if (tokens.size() <= options_.max_length) return tokens;
    ++result_.counts.cut_rows;
    result_.counts.cut_tokens += tokens.size() - options_.max_length;
    const bool keeps_end = options_.keep_end && options_.packing == Packing::kNone;
    return keeps_end ? tokens.last(options_.max_length) : tokens.first(options_.max_length);
  }

  void add_sample(std::span<const std::uint32_t> tokens) {
    const bool labelled = std::any_of(tokens.begin(), tokens.end(), [](std::uint32_t token) {
      return (token & LabelledToken::kLabel) != 0;
    });
    if (!labelled) {
      ++result_.counts.unlabelled_rows;
      return;
    }
    sequences_->add(tokens);
  }

  // --- packing ---

  void add_sequences(std::span<const std::uint32_t> tokens) {
    if (options_.packing == Packing::kBestFit) tokens = cut(tokens);
    while (!tokens.empty()) {
      const std::size_t size = std::min(tokens.size(), options_.max_length);
      waiting_.emplace_back(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(size));
      tokens = tokens.subspan(size);
    }
  }

  void pack_rows() {
    std::vector<std::size_t> lengths;
    for (const auto& sequence : waiting_) lengths.push_back(sequence.size());
    for (const auto& sample : pack(lengths, options_.max_length)) {
      begins_.push_back(num_sequences());
      for (const std::uint32_t i : sample) sequences_->add(waiting_[i]);
    }
    waiting_.clear();
  }

  const SampleOptions& options_;
  const text::Tokenizer& tokenizer_;
  ThreadPool& threads_;
  std::optional<Layout> layout_;
  std::optional<RowEncoder> encoder_;
  std::shared_ptr<SampleSequences> sequences_;
  std::vector<std::uint32_t> begins_;                // with packing
  std::vector<std::vector<std::uint32_t>> waiting_;  // sequences that are not packed yet
  Samples result_;
};

}  // namespace

Samples read_samples(std::span<const fs::path> files, const SampleOptions& options,
                     const text::Tokenizer& tokenizer, ThreadPool& threads) {
  TANDEM_CHECK(!files.empty(), "no file to read");
  SampleReader reader(options, tokenizer, threads);
  for (const fs::path& path : files) reader.add(path);
  return reader.finish();
}

}  // namespace tandem::supervised
