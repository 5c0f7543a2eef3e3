// The labels of a model that tags words: their order, and what a word's tag becomes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/tasks/token_classification/sentences.h"

namespace tandem::token_classification {

// The names of the labels by id: those that the data set declares, else all that occur in the
// training file, by code point, so that "O" comes behind "B-…" and "I-…".
std::vector<std::string> label_names(const SentenceSet& train);

// The labels in the order of the model where it has the same ones (in any order), else in their
// own. `of_model`: the names in its configuration.
std::vector<std::string> in_order_of_model(std::vector<std::string> names,
                                           std::span<const std::string> of_model);

// For each label the one of the further tokens of its word with --label_all_tokens: I-x for B-x
// where that exists, else itself. As in run_ner.py every "B-" of the name becomes "I-".
std::vector<std::uint32_t> inside_labels(std::span<const std::string> names);

// For each of the set's tag names its id among `names`. Throws DataError that names the first row
// with a tag that is not one of them.
std::vector<std::uint32_t> label_ids(const SentenceSet& sentences,
                                     std::span<const std::string> names);

}  // namespace tandem::token_classification
