#include "tandem/tasks/token_classification/inspect.h"

#include <span>
#include <string>
#include <vector>

#include "tandem/core/json.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/tasks/inspect_sequences.h"
#include "tandem/tasks/token_classification/labels.h"

namespace tandem::token_classification {

void inspect_features(const std::filesystem::path& file, const SentenceColumns& columns,
                      const FeatureOptions& options, const text::Tokenizer& tokenizer,
                      ThreadPool& threads, std::ostream& output) {
  const SentenceSet sentences = read_sentences(std::span(&file, 1), columns);
  const std::vector<std::string> names = label_names(sentences);
  const FeatureSet features = build_features(tokenizer, sentences, names, options, threads);
  const auto add_labels = [&](std::size_t i, nlohmann::ordered_json& line) {
    std::vector<std::int32_t> labels(features.num_real_tokens(i), kernels::kIgnoredTarget);
    for (const Position& position : features.positions(i))
      labels[position.token] = static_cast<std::int32_t>(position.label);
    line["labels"] = labels;
  };
  tasks::inspect_sequences("run_ner", features, names, add_labels, output);
}

}  // namespace tandem::token_classification
