// From the data flags of run_mlm and run_clm to the pieces that they train on and evaluate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tandem/hub/dataset_files.h"
#include "tandem/hub/download_observer.h"
#include "tandem/hub/model_arguments.h"
#include "tandem/tasks/corpus/corpus_arguments.h"
#include "tandem/tasks/corpus/text_pieces.h"
#include "tandem/tasks/corpus/text_rows.h"
#include "tandem/tasks/data_source.h"
#include "tandem/tasks/job_task.h"
#include "tandem/text/tokenizer.h"

namespace tandem::corpus {

struct CorpusOptions {
  std::size_t max_seq_length = 0;  // choose_max_seq_length()
  bool line_by_line = false;
  bool blocks = false;  // PieceOptions::blocks, instead of run_mlm's pieces
  LineBreaks line_breaks = LineBreaks::kLeftOut;
  std::uint32_t validation_split_percentage = 5;
  // --max_train_samples, --max_eval_samples: the first pieces.
  std::optional<std::int64_t> max_train_samples = std::nullopt, max_eval_samples = std::nullopt;
  std::optional<int> preprocessing_num_workers =
      std::nullopt;  // threads; they do not change the pieces
  bool overwrite_cache = false;
};

// With the split, the limits and the threads of the flags.
CorpusOptions corpus_options(const CorpusArguments& arguments, std::size_t max_seq_length);

// Empty parts for stages that are not asked for.
struct Corpus {
  TextPieces train, validation;
};

// tasks::check_data_source() for files of text_file_extensions(): without a validation file the
// training file is split.
void check_corpus_source(const tasks::DataSource& source, const tasks::Stages& stages,
                         std::string_view evaluation_flag);

// tasks::find_data_files() under the same rule. Without a validation part `validation` stays empty,
// and read_corpus() splits the training part.
hub::DatasetFiles find_corpus_files(const tasks::DataSource& source, const tasks::Stages& stages,
                                    const hub::ModelArguments& model,
                                    const Environment& environment,
                                    hub::DownloadObserver& downloads);

// --max_seq_length: at most the tokenizer's; unset: the tokenizer's, or 1,024 where that is larger.
// Logs a warning where the result is not what was asked for.
std::size_t choose_max_seq_length(std::optional<std::int64_t> given, std::size_t tokenizer_length,
                                  tasks::StartLog& log);

// --block_size: at most the tokenizer's limit; unset: the tokenizer's limit, or where the model has
// fewer positions those, at most 1,024. Logs a warning where the result is not what was asked for.
// Throws ConfigError for more tokens than the model has positions.
std::size_t choose_block_size(std::optional<std::int64_t> given, std::size_t tokenizer_length,
                              std::size_t model_positions, tasks::StartLog& log);

// Reads, tokenizes and cuts the parts that the stages need. A corpus of more than a few megabytes
// goes into a file of the feature cache while it is read, or into a temporary file without a cache.
// The pieces are the same for any number of threads. Logs what the parts are. Throws DataError,
// ConfigError, IoError.
Corpus read_corpus(const tasks::DataParts& parts, const CorpusOptions& options,
                   const text::Tokenizer& tokenizer);

// Adds perplexity, as the scripts write it in addition to eval_perplexity.
void complete_results(nlohmann::ordered_json& metrics);
// Perplexity, accuracy and the loss.
tasks::LeadingMetrics leading_metrics();

}  // namespace tandem::corpus
