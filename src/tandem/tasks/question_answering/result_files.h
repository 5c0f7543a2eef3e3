// The prediction files of run_qa.py, byte for byte.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tandem/tasks/question_answering/postprocess.h"

namespace tandem::question_answering {

// Texts of the files: {id: answer}, {id: [{start_logit, end_logit, text, probability}, …]}, {id:
// null odds}; 4 spaces, ASCII-escaped, with a final newline.
std::string predictions_json(const Predictions& predictions);
std::string nbest_predictions_json(const Predictions& predictions);
std::string null_odds_json(const Predictions& predictions);

// Writes <prefix>_predictions.json, <prefix>_nbest_predictions.json and, for v2,
// <prefix>_null_odds.json into an existing directory; prefix is "eval" or "predict". Throws
// IoError.
void write_prediction_files(const std::filesystem::path& directory, std::string_view prefix,
                            const Predictions& predictions, bool version_2_with_negative);

}  // namespace tandem::question_answering
