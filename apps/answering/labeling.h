// Texts and the labels that a model in memory gives them, or their words: what `tandem predict`
// prints and `tandem serve` sends.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "apps/answering/inference_model.h"

namespace tandem::apps {

struct LabelOptions {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  // Tokens of a text, including special tokens; never more than the model takes. A longer text is
  // cut, or read in windows if its words get labels.
  std::size_t max_seq_length = 512;
  std::size_t stride = 64;             // tokens that neighbouring windows share
  std::size_t max_windows = kNoLimit;  // windows of all texts together
};

struct LabelledText {
  std::string name;  // for messages
  std::string text;
  std::optional<std::string> pair;  // a second text, for models of pairs
};

// The function applied to the logits of a text.
//   kSoftmax: probabilities of labels of which one is right.
//   kSigmoid: a probability for each label by itself.
//   kNone:    the logits: the value of a regression.
enum class Scores { kSoftmax, kSigmoid, kNone };

struct LabelScore {
  std::size_t label = 0;
  double score = 0;
};

// A token of a text and the probability of each label.
struct LabelledToken {
  std::size_t begin = 0, end = 0;  // code points of the text, half open
  bool continues_word = false;     // it belongs to the tokenizer's word of the token before
  // Aggregation::kFirst, kAverage and kMax join it with the token before.
  bool joins_word = false;
  std::vector<double> probabilities;
};

// A model of text or token classification. Several threads may ask at once.
class Labeller {
 public:
  // Throws what InferenceModel's constructor throws. purpose: kTexts or kTokens.
  Labeller(const FoundModel& found, Purpose purpose, const Environment& environment);

  // For each text the scores of all labels, the best first (equal ones by id). scores: unset: by
  // problem_type of config.json; without one, kNone for a single label, else kSoftmax. Throws
  // DataError for a text that is empty or not UTF-8, or when a limit of the options is exceeded;
  // Interrupted as Reader::answer does.
  std::vector<std::vector<LabelScore>> label_texts(std::span<const LabelledText> texts,
                                                   const LabelOptions& options,
                                                   std::optional<Scores> scores = {},
                                                   const std::stop_token& cancelled = {});
  // The tokens of each text. If windows share a token, the window counts in which the token is
  // farther from the border. Throws as label_texts() does, and for a pair.
  std::vector<std::vector<LabelledToken>> label_tokens(std::span<const LabelledText> texts,
                                                       const LabelOptions& options,
                                                       const std::stop_token& cancelled = {});

  const InferenceModel& model() const { return model_; }
  InferenceModel& model() { return model_; }
  Purpose purpose() const { return purpose_; }
  const std::vector<std::string>& labels() const { return labels_; }
  Scores scores() const;  // the model's own

 private:
  Purpose purpose_;
  std::vector<std::string> labels_;
  InferenceModel model_;
  std::int32_t ignored_end_;  // of the model (score_head.h)
};

// The purpose of a model that labels texts or tokens. Throws ConfigError for another one, with the
// command that it is for.
Purpose label_purpose(const FoundModel& found);

// The flags for reading texts.
void add_label_flags(CLI::App& app, LabelOptions& options);

// --- entities ---

// How tokens become entities: transformers' TokenClassificationPipeline.
//   kNone:    every token is one.
//   kSimple:  neighbours with the same type.
//   kFirst, kAverage, kMax: words get the label of their first token, of the mean of their tokens'
//             probabilities, or of their surest token; then as kSimple. Words are the pipeline's:
//             the tokenizer's words if it marks the tokens that continue one (WordPiece), else what
//             stands between blanks, and an unknown token begins a word.
enum class Aggregation { kNone, kSimple, kFirst, kAverage, kMax };
std::vector<std::string> aggregation_names();                     // in that order: "none" …
inline constexpr std::string_view kDefaultAggregation = "first";  // whole words
std::optional<Aggregation> aggregation_of(std::string_view name);

// --aggregation_strategy, with its default and the names that are valid.
void add_aggregation_flag(CLI::App& app, std::string& name);

struct Entity {
  std::string label;  // kNone: "B-person"; else the type, "person"
  double score = 0;
  std::size_t begin = 0, end = 0;  // code points of the text
  std::size_t token = 0;           // with kNone: index of the token in its text
};

// The entities of a text whose label or type is not among `ignored`. One begins where the type
// changes, and at B-.
std::vector<Entity> entities(std::span<const LabelledToken> tokens,
                             std::span<const std::string> labels, Aggregation aggregation,
                             std::span<const std::string> ignored);

// The tokenizer's words of a text with their labels, "O" among them, which aggregation finds as
// above; for kNone and kSimple the tokens.
std::vector<Entity> words(std::span<const LabelledToken> tokens,
                          std::span<const std::string> labels, Aggregation aggregation);

}  // namespace tandem::apps
