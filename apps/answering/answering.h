// A question, a text, and the answers that a model in memory finds: what `tandem ask` prints and `tandem serve` sends.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/core/env.h"
#include "tandem/core/thread_pool.h"
#include "tandem/hub/model_files.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"
#include "tandem/nn/int8_linear.h"
#include "tandem/tasks/question_answering/postprocess.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/text/tokenizer.h"

namespace CLI {
class App;
}

namespace tandem::apps {

struct AnswerOptions {
  std::size_t n_best = 1;  // answers to return
  std::size_t max_seq_length = 384;
  std::size_t doc_stride = 128;
  question_answering::PostprocessOptions postprocess;
};

// Where an answer lies in the text, in code points, half open.
struct AnswerSpan {
  std::size_t start = 0;
  std::size_t end = 0;
};

struct Answer {
  std::string text;  // empty: the text holds no answer
  double probability = 0;
  std::optional<AnswerSpan> span;  // nothing: no answer
};

// A model ready for inference. One question at a time; the threads inside it compute in parallel.
class Reader {
 public:
  // Throws what resolving and reading a model throws. The number of threads is OMP_NUM_THREADS, else the available cores.
  Reader(const hub::ModelArguments& arguments, const Environment& environment);

  // At least one answer, the chosen one first, then the others by their score. A window is never longer than the model's
  // positions, and overlaps the next by half of them at most. Throws DataError when the question or the context
  // is empty, is not UTF-8, or the question leaves no room for the context.
  std::vector<Answer> answer(std::string_view context, std::string_view question,
                             const AnswerOptions& options);

  // Set when the model has no head for question answering, so that answers are random.
  const std::string& warning() const { return warning_; }
  std::size_t num_parameters() const { return task_.layout().num_parameters(); }
  std::size_t max_positions() const { return task_.model().config().max_position_embeddings; }

 private:
  // Logits [rows, 2] of all features, one after another, without padding.
  std::vector<float> logits_of(const question_answering::FeatureSet& features);

  ThreadPool threads_;
  kernels::KernelSet kernels_;
  kernels::Scratch scratch_;
  hub::ModelLocation location_;
  text::Tokenizer tokenizer_;
  question_answering::QuestionAnsweringTask task_;
  Buffer weights_;
  std::optional<nn::Int8Linears> int8_;  // of an int8 model
  std::string warning_;
};

// Throws DataError when `text` has nothing but white space; `what` begins the message: "the context on standard input".
void require_text(std::string_view text, std::string_view what);

// The flags that every command takes which answers questions: the model and how it reads.
void add_answer_flags(CLI::App& app, hub::ModelArguments& model, AnswerOptions& options);

}  // namespace tandem::apps
