#include "tandem/tasks/question_answering/result_files.h"

#include <fmt/format.h>

#include "tandem/core/file.h"
#include "tandem/core/python_json.h"

namespace tandem::question_answering {
namespace {

// Takes a text as it is made.
using Sink = FunctionRef<void(std::string_view piece)>;

// A JSON object with one member per prediction, written directly: a tree of ten thousand n-best
// lists would only cost time and memory.
template <class Value>
void object_by_id(const Predictions& predictions, Value value, Sink sink) {
  if (predictions.predictions.empty()) return sink("{}\n");
  std::string_view separator = "{";
  for (const Prediction& prediction : predictions.predictions) {
    sink(fmt::format("{}\n    {}: {}", separator, python_json_string(prediction.id),
                     value(prediction)));
    separator = ",";
  }
  sink("\n}\n");
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

void write_predictions(const Predictions& predictions, Sink sink) {
  object_by_id(
      predictions, [](const Prediction& p) { return python_json_string(p.text); }, sink);
}

void write_nbest_predictions(const Predictions& predictions, Sink sink) {
  object_by_id(predictions, n_best_json, sink);
}

void write_null_odds(const Predictions& predictions, Sink sink) {
  object_by_id(
      predictions, [](const Prediction& p) { return number(p.null_odds); }, sink);
}

using Writer = void (*)(const Predictions&, Sink);

std::string text_of(Writer write, const Predictions& predictions) {
  std::string text;
  write(predictions, [&](std::string_view piece) { text += piece; });
  return text;
}

// The n-best lists of a large set are many times what they are made from, so no text of a whole
// file is kept.
void write_to(const std::filesystem::path& path, Writer write, const Predictions& predictions) {
  constexpr std::size_t kPiece = std::size_t{1} << 18;
  AtomicFile file(path);
  std::string pending;
  write(predictions, [&](std::string_view piece) {
    pending += piece;
    if (pending.size() < kPiece) return;
    file.write(pending);
    pending.clear();
  });
  file.write(pending);
  file.commit();
}

}  // namespace

std::string predictions_json(const Predictions& predictions) {
  return text_of(write_predictions, predictions);
}

std::string nbest_predictions_json(const Predictions& predictions) {
  return text_of(write_nbest_predictions, predictions);
}

std::string null_odds_json(const Predictions& predictions) {
  return text_of(write_null_odds, predictions);
}

void write_prediction_files(const std::filesystem::path& directory, std::string_view prefix,
                            const Predictions& predictions, bool version_2_with_negative) {
  const auto path = [&](std::string_view name) {
    return directory / fmt::format("{}_{}.json", prefix, name);
  };
  write_to(path("predictions"), write_predictions, predictions);
  write_to(path("nbest_predictions"), write_nbest_predictions, predictions);
  if (version_2_with_negative) write_to(path("null_odds"), write_null_odds, predictions);
}

}  // namespace tandem::question_answering
