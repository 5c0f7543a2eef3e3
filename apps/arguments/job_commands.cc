#include "apps/arguments/job_commands.h"

#include <algorithm>

#include "tandem/tasks/causal_language/command_line.h"
#include "tandem/tasks/embedding/command_line.h"
#include "tandem/tasks/masked_language/command_line.h"
#include "tandem/tasks/question_answering/command_line.h"
#include "tandem/tasks/reranking/command_line.h"
#include "tandem/tasks/supervised/command_line.h"
#include "tandem/tasks/text_classification/command_line.h"
#include "tandem/tasks/token_classification/command_line.h"

namespace tandem::apps {
namespace {

constexpr JobCommand kJobCommands[] = {
    {"run_qa", "extractive question answering", "Hugging Face's run_qa.py",
     "fine-tune and evaluate a model for question answering, as Hugging Face's run_qa.py",
     make_arguments<question_answering::CommandLine>},
    {"run_glue", "classification of texts and pairs of texts", "Hugging Face's run_glue.py",
     "fine-tune and evaluate a model for GLUE or files of texts, as run_glue.py",
     make_arguments<text_classification::GlueCommandLine>, Trained::kBoth},
    {"run_classification", "classification of texts by one or several labels",
     "Hugging Face's run_classification.py",
     "fine-tune and evaluate a model for texts with one or several labels, as "
     "run_classification.py",
     make_arguments<text_classification::ClassificationCommandLine>, Trained::kBoth},
    {"run_ner", "tagging words", "Hugging Face's run_ner.py",
     "fine-tune and evaluate a model that tags words, as Hugging Face's run_ner.py",
     make_arguments<token_classification::CommandLine>},
    {"run_embedding", "sentence embeddings", "the arguments of sentence-transformers",
     "fine-tune and evaluate a bi-encoder, as the trainer of sentence-transformers",
     make_arguments<tasks::embedding::CommandLine>, Trained::kBoth},
    {"run_mlm", "masked language modelling", "Hugging Face's run_mlm.py",
     "adapt an encoder to texts by masked language modelling, as run_mlm.py",
     make_arguments<masked_language::CommandLine>},
    {"run_clm", "causal language modelling", "Hugging Face's run_clm.py",
     "train a decoder on texts by causal language modelling, as run_clm.py",
     make_arguments<causal_language::CommandLine>, Trained::kDecoders},
    {"run_sft", "prompts and completions", "the arguments of TRL",
     "train a decoder on prompts with completions, conversations or texts, as TRL's SFTTrainer",
     make_arguments<supervised::CommandLine>, Trained::kDecoders},
    {"run_reranker", "reranking passages for queries", "the arguments of sentence-transformers",
     "fine-tune and evaluate a cross-encoder that ranks passages for queries",
     make_arguments<tasks::reranking::CommandLine>, Trained::kBoth},
};

}  // namespace

std::span<const JobCommand> job_commands() { return kJobCommands; }

const JobCommand* find_job_command(std::string_view name) {
  const auto all = job_commands();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const JobCommand& command) { return command.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace tandem::apps
