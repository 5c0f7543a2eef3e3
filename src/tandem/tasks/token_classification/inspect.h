// `tandem inspect features --task run_ner`: what the model sees of tagged words.
#pragma once

#include <filesystem>
#include <iosfwd>

#include "tandem/tasks/token_classification/features.h"
#include "tandem/tasks/token_classification/sentences.h"

namespace tandem::token_classification {

// The features of a training file with its tags, as tasks::inspect_sequences() writes them; the
// lines have "labels": the id of each token's tag, −100 where it has none. Throws what reading
// training data throws.
void inspect_features(const std::filesystem::path& file, const SentenceColumns& columns,
                      const FeatureOptions& options, const text::Tokenizer& tokenizer,
                      ThreadPool& threads, std::ostream& output);

}  // namespace tandem::token_classification
