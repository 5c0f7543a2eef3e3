// The model's input as JSON lines: `tandem inspect tokens` and `tandem inspect features`.
#pragma once

#include <iosfwd>
#include <span>

#include "tandem/data/question_example.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/text/tokenizer.h"

namespace tandem::question_answering {

// One object {"text", "input_ids", "tokens", "offsets", "word_ids"} per line of `input`: with
// special tokens, whose words are null, offsets in code points. With `json` a line is a JSON
// string, which may hold line breaks, or an array of the words of a text; else the text itself.
// Throws DataError naming the line if it is not valid UTF-8 or not such JSON.
void inspect_tokens(const text::Tokenizer& tokenizer, bool json, std::istream& input,
                    std::ostream& output);

// A header line {"set", "examples", "features", "max_length", "stride", "real_tokens",
// "total_tokens", "real_share"}, then one object per feature, without padding: {"i", "example",
// "id", "n_real", "input_ids", "token_type_ids"}; with labels "start" and "end", else "offsets" in
// code points, [-1, -1] outside of the context. `full` adds "first_type1", the first token of the
// context, and "offsets" also with labels.
void inspect_features(const FeatureSet& features, std::span<const data::QuestionExample> examples,
                      const FeatureOptions& options, bool full, std::ostream& output);

}  // namespace tandem::question_answering
