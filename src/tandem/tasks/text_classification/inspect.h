// `tandem inspect features --task run_glue|run_classification`: what the model sees of texts.
#pragma once

#include <filesystem>
#include <iosfwd>

#include "tandem/core/thread_pool.h"
#include "tandem/tasks/text_classification/classification_arguments.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text_classification {

// The features of a training file with its labels, as tasks::inspect_sequences() writes them; the
// lines have "label": the id of a class, a number, or for each of several labels 1 or 0. Of the
// arguments max_seq_length, max_train_samples, task_name and what chooses columns and the kind of
// labels are read. Throws what reading training data throws, and ConfigError for a task_name that
// is not GLUE's.
void inspect_features(const std::filesystem::path& file, const ClassificationArguments& arguments,
                      const text::Tokenizer& tokenizer, ThreadPool& threads, std::ostream& output);

}  // namespace tandem::text_classification
