#include "tandem/tasks/causal_language/command_line.h"

#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/causal_language/causal_language_job.h"
#include "tandem/tasks/corpus/corpus.h"

namespace tandem::causal_language {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using Arguments = CausalLanguageArguments;

FlagTable block_flags() {
  constexpr double kMaxLength = 1 << 20;
  FlagTable table = {
      flag(
          "block_size", field<&Arguments::block_size>(),
          "tokens of a block; unset: the tokenizer's model_max_length, or at most 1,024 where that "
          "is more than the model's positions")
          .between(2, kMaxLength),
      flag("keep_linebreaks", field<&Arguments::keep_linebreaks>(),
           "rows of text files keep their line breaks")
          .with_bare()
          .with_negation(),
  };
  for (const flags::Flag& row : corpus::sample_flags()) table.push_back(row);
  return grouped("Blocks", std::move(table));
}

}  // namespace

FlagTable CommandLine::flags() const {
  FlagTable table = corpus::model_flags();
  for (const FlagTable& part : {corpus::data_flags(), block_flags()})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

void CommandLine::check(const tasks::Stages& stages, std::string_view evaluation_flag) {
  if (stages.predict) {
    raise<ConfigError>(
        "--do_predict: run_clm predicts nothing; evaluate with --do_eval, and pass the model to "
        "another program to generate text");
  }
  corpus::check_corpus_source(arguments_, stages, evaluation_flag);
}

std::unique_ptr<tasks::JobTask> CommandLine::make_job() const {
  return std::make_unique<CausalLanguageJob>(arguments_);
}

}  // namespace tandem::causal_language
