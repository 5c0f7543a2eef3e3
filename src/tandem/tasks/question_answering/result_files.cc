#include "tandem/tasks/question_answering/result_files.h"

#include <fmt/format.h>

#include "tandem/core/file.h"
#include "tandem/core/python_json.h"

namespace tandem::question_answering {
namespace {

// A JSON object with one member per prediction, written directly: a tree of ten thousand n-best
// lists would only cost time.
template <class Value>
std::string object_by_id(const Predictions& predictions, Value value) {
  if (predictions.predictions.empty()) return "{}\n";
  std::string out = "{";
  for (const Prediction& prediction : predictions.predictions) {
    if (out.size() > 1) out += ',';
    out += "\n    ";
    out += python_json_string(prediction.id);
    out += ": ";
    out += value(prediction);
  }
  return out + "\n}\n";
}

// json.dumps writes floats that JSON lacks by these names.
std::string number(double value) {
  const std::string text = python_repr(value);
  return text == "nan" ? "NaN" : text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
}

std::string candidate_json(const Candidate& candidate) {
  const std::string text = fmt::format("\"text\": {}", python_json_string(candidate.text));
  const std::string logits =
      fmt::format("\"start_logit\": {},\n            \"end_logit\": {}",
                  number(candidate.start_logit), number(candidate.end_logit));
  return fmt::format(
      "{{\n            {},\n            {},\n            \"probability\": {}\n        }}",
      candidate.placeholder ? text : logits, candidate.placeholder ? logits : text,
      number(candidate.probability));
}

std::string n_best_json(const Prediction& prediction) {
  if (prediction.n_best.empty()) return "[]";
  std::string out = "[";
  for (const Candidate& candidate : prediction.n_best) {
    if (out.size() > 1) out += ',';
    out += "\n        " + candidate_json(candidate);
  }
  return out + "\n    ]";
}

}  // namespace

std::string predictions_json(const Predictions& predictions) {
  return object_by_id(predictions, [](const Prediction& p) { return python_json_string(p.text); });
}

std::string nbest_predictions_json(const Predictions& predictions) {
  return object_by_id(predictions, n_best_json);
}

std::string null_odds_json(const Predictions& predictions) {
  return object_by_id(predictions, [](const Prediction& p) { return number(p.null_odds); });
}

void write_prediction_files(const std::filesystem::path& directory, std::string_view prefix,
                            const Predictions& predictions, bool version_2_with_negative) {
  const auto path = [&](std::string_view name) {
    return directory / fmt::format("{}_{}.json", prefix, name);
  };
  write_file(path("predictions"), predictions_json(predictions));
  write_file(path("nbest_predictions"), nbest_predictions_json(predictions));
  if (version_2_with_negative) write_file(path("null_odds"), null_odds_json(predictions));
}

}  // namespace tandem::question_answering
