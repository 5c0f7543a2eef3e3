#include "tandem/tasks/masked_language/command_line.h"

#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/corpus/corpus.h"
#include "tandem/tasks/masked_language/masked_language_job.h"

namespace tandem::masked_language {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using Arguments = MaskedLanguageArguments;

FlagTable piece_flags() {
  constexpr double kMaxLength = 1 << 20;
  FlagTable table = grouped(
      "Pieces",
      {
          flag("max_seq_length", field<&Arguments::max_seq_length>(),
               "tokens of a piece, special ones included; unset: the tokenizer's model_max_length, "
               "at most 1,024")
              .between(3, kMaxLength),
          flag("line_by_line", field<&Arguments::line_by_line>(),
               "each row that is not blank is a piece; otherwise rows are joined and cut"),
          flag("pad_to_max_length", field<&Arguments::pad_to_max_length>(),
               "unset: compute no padding; true: pad to max_seq_length; false: pad to the longest "
               "of the batch; the numbers are the same but for rounding")
              .with_bare()
              .with_negation(),
      });
  for (const flags::Flag& row : grouped("Pieces", corpus::sample_flags())) table.push_back(row);
  return table;
}

FlagTable mask_flags() {
  return grouped(
      "Masks",
      {
          flag("mlm_probability", field<&Arguments::mlm_probability>(),
               "share of the tokens that the model predicts, above 0")
              .between(0, 1),
          flag("whole_word_mask", field<&Arguments::whole_word_mask>(),
               "words are predicted whole or not at all"),
          flag("torch_masks", field<&Arguments::torch_masks>(),
               "draw the masks of the official script, for comparisons with it: one rank, no "
               "dropout"),
      });
}

}  // namespace

FlagTable CommandLine::flags() const {
  FlagTable table = corpus::model_flags();
  for (const FlagTable& part : {corpus::data_flags(), piece_flags(), mask_flags()})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

void CommandLine::check(const tasks::Stages& stages, std::string_view evaluation_flag) {
  if (stages.predict) {
    raise<ConfigError>(
        "--do_predict: run_mlm predicts nothing; evaluate with --do_eval, and use the model in "
        "another task");
  }
  if (arguments_.mlm_probability < kLeastProbability) {
    raise<ConfigError>(
        "--mlm_probability: found {:g}, expected a number above 0: no token would be chosen, so "
        "nothing would be predicted",
        arguments_.mlm_probability);
  }
  corpus::check_corpus_source(arguments_, stages, evaluation_flag);
}

std::unique_ptr<tasks::JobTask> CommandLine::make_job() const {
  return std::make_unique<MaskedLanguageJob>(arguments_);
}

}  // namespace tandem::masked_language
