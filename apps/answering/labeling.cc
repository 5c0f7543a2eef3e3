#include "apps/answering/labeling.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "apps/answering/answering.h"
#include "apps/answering/framed_sequences.h"
#include "apps/command/command_line.h"
#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/models/heads/score_head.h"
#include "tandem/tasks/label_config.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {
namespace {

std::string name_in_message(const LabelledText& text) {
  return text.name.empty() ? "the text" : text.name;
}

void encode(const text::Tokenizer& tokenizer, const std::string& text, const std::string& name,
            text::Encoding& encoding) {
  require_text(text, name);
  try {
    tokenizer.encode(text, encoding);
  } catch (const DataError& error) {
    raise<DataError>("{}: {}", name, error.what());
  }
}

// Tokens of text that a sequence has room for in addition to the special ones.
std::size_t room_for_text(const InferenceModel& model, const LabelOptions& options,
                          std::size_t special_tokens) {
  const std::size_t most = std::min(options.max_seq_length, model.max_tokens());
  if (most <= special_tokens) {
    raise<DataError>(
        "sequences of {} tokens have no room for a text in addition to {} special tokens", most,
        special_tokens);
  }
  return most - special_tokens;
}

void check_windows(std::size_t windows, const LabelOptions& options) {
  if (windows > options.max_windows) {
    raise<DataError>(
        "more than {} windows are needed, which is the limit of a request; send shorter or fewer "
        "texts",
        options.max_windows);
  }
}

void add_text(const InferenceModel& model, std::int32_t ignored_end, const LabelledText& text,
              const LabelOptions& options, FramedSequences& sequences) {
  const text::SequenceTemplate frame =
      tasks::label_frame(model.tokenizer(), ignored_end, text.pair.has_value());
  text::Encoding first, second;
  encode(model.tokenizer(), text.text, name_in_message(text), first);
  const std::span<const std::int32_t> ids = first.ids;
  if (!text.pair) {
    const std::size_t room = room_for_text(model, options, frame.special_tokens_of_one());
    return sequences.add(frame, ids.first(std::min(ids.size(), room)));
  }
  encode(model.tokenizer(), *text.pair, "the second text of " + name_in_message(text), second);
  const std::size_t room = room_for_text(model, options, frame.special_tokens_of_pair());
  const auto [a, b] = text::truncate_longest_first(ids.size(), second.ids.size(), room);
  sequences.add(frame, ids.first(a), std::span<const std::int32_t>(second.ids).first(b));
}

std::vector<double> softmax(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp(static_cast<double>(logits[i]) - largest);
    sum += p[i];
  }
  for (double& value : p) value /= sum;
  return p;
}

std::vector<double> apply(Scores scores, std::span<const float> logits) {
  if (scores == Scores::kSoftmax) return softmax(logits);
  std::vector<double> values(logits.begin(), logits.end());
  if (scores == Scores::kSigmoid) {
    for (double& value : values) value = 1 / (1 + std::exp(-value));
  }
  return values;
}

std::vector<LabelScore> ranked(const std::vector<double>& scores) {
  std::vector<LabelScore> labels;
  for (std::size_t i = 0; i < scores.size(); ++i) labels.push_back({i, scores[i]});
  std::stable_sort(labels.begin(), labels.end(),
                   [](const LabelScore& a, const LabelScore& b) { return a.score > b.score; });
  return labels;
}

// --- windows of a long text ---

struct Window {
  std::size_t begin = 0, end = 0;  // tokens of the text
};

// Windows of `room` tokens of which neighbours share `stride`; the last one ends with the text.
std::vector<Window> windows_of(std::size_t tokens, std::size_t room, std::size_t stride) {
  std::vector<Window> windows;
  const std::size_t step = room - std::min(stride, room - 1);
  InterruptionCheck check;
  for (std::size_t begin = 0;; begin += step) {
    check.count();
    windows.push_back({begin, std::min(tokens, begin + room)});
    if (windows.back().end == tokens) return windows;
  }
}

// The window in which the token is farthest from the border; the ends of the text are none.
std::size_t best_window(std::span<const Window> windows, std::size_t tokens, std::size_t token) {
  const auto first = std::partition_point(
      windows.begin(), windows.end(), [&](const Window& window) { return window.end <= token; });
  std::size_t best = 0, best_distance = 0;
  for (auto w = static_cast<std::size_t>(first - windows.begin());
       w < windows.size() && windows[w].begin <= token; ++w) {
    const std::size_t left = windows[w].begin == 0 ? tokens : token - windows[w].begin;
    const std::size_t right = windows[w].end == tokens ? tokens : windows[w].end - 1 - token;
    const std::size_t distance = std::min(left, right) + 1;
    if (distance > best_distance) {
      best = w;
      best_distance = distance;
    }
  }
  return best;
}

struct EncodedText {
  text::Encoding encoding;
  std::vector<Window> windows;
  std::size_t first_window = 0;  // among those of all texts
};

std::u32string code_points_of(std::string_view text) {
  std::u32string code_points;
  InterruptionCheck check;
  for (std::size_t at = 0; at < text.size();) {
    check.count();
    code_points += text::next_code_point(text, at);
  }
  return code_points;
}

// Some tokenizers let a token begin with the blank before its word.
void trim(std::u32string_view text, std::size_t& begin, std::size_t& end) {
  const auto is_blank = [&](std::size_t i) { return text::is_python_space(text[i]); };
  while (begin < end && is_blank(begin)) ++begin;
  while (begin < end && is_blank(end - 1)) --end;
}

bool same_word(const text::Encoding& encoding, std::size_t token) {
  return token > 0 && encoding.word_ids[token] == encoding.word_ids[token - 1];
}

// The rule of transformers' pipeline, which looks at the place where the token begins, a blank of
// its own included.
bool joins_word(const text::Tokenizer& tokenizer, const text::Encoding& encoding, std::size_t token,
                std::u32string_view text) {
  if (tokenizer.marks_continuations()) return same_word(encoding, token);
  const std::size_t begin = encoding.offsets[token].begin;
  const auto is_space = [&](std::size_t i) { return i < text.size() && text[i] == U' '; };
  return encoding.ids[token] != tokenizer.unk_token_id() && begin > 0 && !is_space(begin - 1) &&
         !is_space(begin);
}

// logits: [tokens of all windows, labels]; window_begin: the first row of each.
std::vector<LabelledToken> tokens_of(const text::Tokenizer& tokenizer, const EncodedText& text,
                                     std::u32string_view code_points, std::span<const float> logits,
                                     std::span<const std::size_t> window_begin,
                                     std::size_t num_labels) {
  std::vector<LabelledToken> tokens;
  const text::Encoding& encoding = text.encoding;
  InterruptionCheck check;
  for (std::size_t t = 0; t < encoding.ids.size(); ++t) {
    check.count(num_labels);
    const std::size_t w = best_window(text.windows, encoding.ids.size(), t);
    const std::size_t row = window_begin[text.first_window + w] + 1 + t - text.windows[w].begin;
    LabelledToken token{.begin = encoding.offsets[t].begin,
                        .end = encoding.offsets[t].end,
                        .continues_word = same_word(encoding, t),
                        .joins_word = joins_word(tokenizer, encoding, t, code_points),
                        .probabilities = softmax(logits.subspan(row * num_labels, num_labels))};
    trim(code_points, token.begin, token.end);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// --- entities ---

constexpr std::array<std::string_view, 5> kAggregations = {"none", "simple", "first", "average",
                                                           "max"};

std::size_t best_label(std::span<const double> scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// "B-person" → begins, "person". A name without B- or I- is a type.
struct Tag {
  bool begins;
  std::string_view type;
};

Tag tag_of(std::string_view label) {
  if (label.starts_with("B-")) return {true, label.substr(2)};
  if (label.starts_with("I-")) return {false, label.substr(2)};
  return {false, label};
}

// The probabilities of a word of one or more tokens.
std::vector<double> word_scores(std::span<const LabelledToken> word, Aggregation aggregation) {
  if (aggregation == Aggregation::kMax) {
    const auto largest = [](const LabelledToken& token) {
      return *std::max_element(token.probabilities.begin(), token.probabilities.end());
    };
    return std::max_element(word.begin(), word.end(),
                            [&](const LabelledToken& a, const LabelledToken& b) {
                              return largest(a) < largest(b);
                            })
        ->probabilities;
  }
  std::vector<double> scores = word.front().probabilities;
  if (aggregation == Aggregation::kFirst) return scores;
  for (const LabelledToken& token : word.subspan(1)) {
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += token.probabilities[i];
  }
  for (double& score : scores) score /= static_cast<double>(word.size());
  return scores;
}

// One entity per token, or per word; `continues`: whether a token belongs to the word of the token
// before.
std::vector<Entity> pieces(std::span<const LabelledToken> tokens,
                           std::span<const std::string> labels, Aggregation aggregation,
                           bool LabelledToken::*continues) {
  const bool by_word = aggregation != Aggregation::kNone && aggregation != Aggregation::kSimple;
  std::vector<Entity> found;
  InterruptionCheck check;
  for (std::size_t t = 0; t < tokens.size();) {
    check.count(tokens[t].probabilities.size());
    std::size_t end = t + 1;
    while (by_word && end < tokens.size() && tokens[end].*continues) ++end;
    const std::vector<double> scores =
        by_word ? word_scores(tokens.subspan(t, end - t), aggregation) : tokens[t].probabilities;
    const std::size_t best = best_label(scores);
    found.push_back({.label = labels[best],
                     .score = scores[best],
                     .begin = tokens[t].begin,
                     .end = tokens[end - 1].end,
                     .token = t});
    t = end;
  }
  return found;
}

// Neighbours of one type; their score is the mean.
std::vector<Entity> grouped(const std::vector<Entity>& pieces) {
  std::vector<Entity> groups;
  std::size_t members = 0;
  for (const Entity& piece : pieces) {
    const Tag tag = tag_of(piece.label);
    if (!groups.empty() && groups.back().label == tag.type && !tag.begins) {
      groups.back().score += piece.score;
      groups.back().end = piece.end;
      ++members;
      continue;
    }
    if (!groups.empty()) groups.back().score /= static_cast<double>(members);
    groups.push_back(piece);
    groups.back().label = tag.type;
    members = 1;
  }
  if (!groups.empty()) groups.back().score /= static_cast<double>(members);
  return groups;
}

}  // namespace

Labeller::Labeller(const FoundModel& found, Purpose purpose, const Environment& environment)
    : purpose_(purpose),
      labels_(label_names(found.config)),
      model_(found, purpose, environment),
      ignored_end_(models::ignored_end(found.config)) {}

Scores Labeller::scores() const {
  const std::string& type = model_.model().config().problem_type;
  if (type == "regression") return Scores::kNone;
  if (type == "multi_label_classification") return Scores::kSigmoid;
  if (type.empty() && labels_.size() == 1) return Scores::kNone;
  return Scores::kSoftmax;
}

std::vector<std::vector<LabelScore>> Labeller::label_texts(std::span<const LabelledText> texts,
                                                           const LabelOptions& options,
                                                           std::optional<Scores> scores,
                                                           const std::stop_token& cancelled) {
  check_windows(texts.size(), options);
  const auto sequences = std::make_shared<FramedSequences>();
  for (const LabelledText& text : texts) add_text(model_, ignored_end_, text, options, *sequences);
  const std::vector<float> logits = model_.logits_of(sequences, cancelled);
  std::vector<std::vector<LabelScore>> results;
  const std::size_t count = labels_.size();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    results.push_back(ranked(
        apply(scores.value_or(this->scores()), std::span(logits).subspan(i * count, count))));
  }
  return results;
}

std::vector<std::vector<LabelledToken>> Labeller::label_tokens(std::span<const LabelledText> texts,
                                                               const LabelOptions& options,
                                                               const std::stop_token& cancelled) {
  const text::SequenceTemplate& frame = model_.tokenizer().sequence_template();
  const std::size_t room = room_for_text(model_, options, frame.special_tokens_of_one());
  const auto sequences = std::make_shared<FramedSequences>();
  std::vector<EncodedText> encoded(texts.size());
  std::vector<std::size_t> window_begin{0};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string name = name_in_message(texts[i]);
    if (texts[i].pair) raise<DataError>("{} is a pair; expected one text", name);
    encode(model_.tokenizer(), texts[i].text, name, encoded[i].encoding);
    const std::span<const std::int32_t> ids = encoded[i].encoding.ids;
    encoded[i].windows = windows_of(ids.size(), room, options.stride);
    encoded[i].first_window = sequences->size();
    check_windows(sequences->size() + encoded[i].windows.size(), options);
    for (const Window& window : encoded[i].windows) {
      sequences->add(frame, ids.subspan(window.begin, window.end - window.begin));
      window_begin.push_back(window_begin.back() +
                             sequences->num_real_tokens(sequences->size() - 1));
    }
  }
  const std::vector<float> logits = model_.logits_of(sequences, cancelled);
  std::vector<std::vector<LabelledToken>> results;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    results.push_back(tokens_of(model_.tokenizer(), encoded[i], code_points_of(texts[i].text),
                                logits, window_begin, labels_.size()));
  }
  return results;
}

Purpose label_purpose(const FoundModel& found) {
  const std::optional<Purpose> purpose = purpose_of(found);
  const std::string where = (found.location.config_directory / "config.json").string();
  if (!purpose && found.is_decoder()) refuse_other_purpose(found, Purpose::kGeneration);
  if (!purpose) {
    raise<ConfigError>(
        "{}: architectures names no class of a trained model; expected …ForSequenceClassification "
        "or …ForTokenClassification; train one with tandem run_classification, run_ner or "
        "run_reranker, or use tandem embed if the model makes embeddings",
        where);
  }
  if (*purpose == Purpose::kQuestions) refuse_other_purpose(found, *purpose);
  return *purpose;
}

void add_label_flags(CLI::App& app, LabelOptions& options) {
  app.add_option(
         "--max_seq_length", options.max_seq_length,
         "tokens the model reads at once; longer texts are cut, or read in windows if their "
         "words get labels")
      ->capture_default_str()
      ->check(whole_number_in(3, 1 << 20));
  app.add_option("--stride", options.stride,
                 "tokens that neighbouring windows share, if words get labels")
      ->capture_default_str()
      ->check(whole_number_in(0, 1 << 20));
}

void add_aggregation_flag(CLI::App& app, std::string& name) {
  app.add_option("--aggregation_strategy", name,
                 "how the tokens of a tagger become words and entities, as in transformers' "
                 "pipeline; first, average and max keep words whole")
      ->capture_default_str()
      ->check(CLI::IsMember(aggregation_names()));
}

std::vector<std::string> aggregation_names() {
  return {kAggregations.begin(), kAggregations.end()};
}

std::optional<Aggregation> aggregation_of(std::string_view name) {
  const auto found = std::find(kAggregations.begin(), kAggregations.end(), name);
  if (found == kAggregations.end()) return std::nullopt;
  return static_cast<Aggregation>(found - kAggregations.begin());
}

std::vector<Entity> entities(std::span<const LabelledToken> tokens,
                             std::span<const std::string> labels, Aggregation aggregation,
                             std::span<const std::string> ignored) {
  std::vector<Entity> found = pieces(tokens, labels, aggregation, &LabelledToken::joins_word);
  if (aggregation != Aggregation::kNone) found = grouped(found);
  std::erase_if(found, [&](const Entity& entity) {
    return std::find(ignored.begin(), ignored.end(), entity.label) != ignored.end();
  });
  return found;
}

std::vector<Entity> words(std::span<const LabelledToken> tokens,
                          std::span<const std::string> labels, Aggregation aggregation) {
  return pieces(tokens, labels, aggregation, &LabelledToken::continues_word);
}

}  // namespace tandem::apps
