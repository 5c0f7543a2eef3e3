// Mistakes of an evaluation, for people to look through in the report.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/tasks/analysis.h"
#include "tandem/tasks/text_classification/examples.h"
#include "tandem/tasks/text_classification/labels.h"

namespace tandem::text_classification {

struct Mistake {
  std::string first, second;        // the texts; second is empty for single ones
  std::string predicted, expected;  // labels or numbers
  double confidence = 0;            // kSingleLabel: probability of what was predicted
  double rightness = 0;  // kSingleLabel: probability of what was expected; else 1 / (1 + error)
  std::string location;
};

// The most labels of a confusion matrix that people can read.
inline constexpr std::size_t kMostOfMatrix = 30;

struct Mistakes {
  Problem problem = Problem::kSingleLabel;
  std::size_t num_texts = 0;
  std::size_t num_wrong = 0;        // kRegression: those that are off by more than half
  std::vector<std::string> labels;  // labels of the matrix, by id
  // [expected, predicted] counts of texts; kSingleLabel with at most kMostOfMatrix labels only.
  std::vector<std::size_t> confusion;
  std::vector<Mistake> shown;  // the first ones in order; kRegression: the worst ones
};

// `examples` have labels; `logits` of each text are [outputs].
Mistakes find_mistakes(const ExampleSet& examples, const LabelSet& labels,
                       std::span<const std::span<const float>> logits, std::size_t limit);

// A confusion matrix, and the list of mistakes. Nothing without texts.
std::optional<tasks::Analysis> analyze(const Mistakes& mistakes);

// How prediction files and reports write the prediction of a text: a label, a list of labels
// as Python prints it, a number with 3 decimals.
std::string prediction_text(const LabelSet& labels, std::span<const float> logits);

}  // namespace tandem::text_classification
