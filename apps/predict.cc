// `tandem predict --model DIR "text"`: the labels that a trained model gives a text, a pair of
// texts, the lines of a file, or their words.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <utility>

#include "apps/answering/answering.h"
#include "apps/answering/label_json.h"
#include "apps/answering/labeling.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/line_output.h"
#include "apps/command/text_lines.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;

// Texts that are read, computed and printed together.
constexpr std::size_t kLabelledAtOnce = 256;

struct PredictFlags {
  ModelOptions model;
  LabelOptions labels;
  std::vector<std::string> text;
  std::string pair;
  std::string file;
  bool pairs = false;
  bool json = false;
  std::size_t top_k = 1;
  std::string aggregation{kDefaultAggregation};
};

bool parse_options(const std::vector<std::string>& words, PredictFlags& options) {
  CLI::App app(
      "Says the labels that a model of text classification gives a text, or the entities that a "
      "model of token classification finds in it.",
      "tandem predict");
  add_model_flags(app, options.model);
  auto* text = app.add_option("text", options.text, "the text");
  app.add_option("--text_pair", options.pair, "the second text, for a model of pairs")->needs(text);
  auto* file =
      app.add_option("--file", options.file, "file with a text on each line; -: standard input")
          ->excludes(text);
  app.add_flag("--pairs", options.pairs, "a line has two texts with a tab between them")
      ->needs(file);
  app.add_flag("--json", options.json,
               "print a JSON object for each text: with labels and scores, or with entities");
  app.add_option("--top_k", options.top_k, "labels of a text to print, the best first")
      ->capture_default_str()
      ->check(whole_number_in(1, 1 << 20));
  add_aggregation_flag(app, options.aggregation);
  add_label_flags(app, options.labels);
  if (!parse_command(app, words)) return false;
  if (options.text.empty() && options.file.empty()) {
    throw ConfigError("missing text to label; pass a text, or --file with a text on each line",
                      /*usage=*/true);
  }
  return true;
}

// --- the texts ---

class LabelledTexts {
 public:
  explicit LabelledTexts(const PredictFlags& options) : options_(options) {
    if (!options.file.empty()) lines_.emplace(options.file);
  }

  // The next ones, at most kLabelledAtOnce; empty: there are no more. Empty lines are passed over.
  std::vector<LabelledText> next() {
    std::vector<LabelledText> texts;
    if (options_.file.empty()) {
      if (!std::exchange(done_, true)) texts.push_back(of_command_line());
      return texts;
    }
    std::string line;
    while (texts.size() < kLabelledAtOnce && lines_->next(line)) {
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      texts.push_back(of_line(std::move(line)));
    }
    return texts;
  }

  // Where lines come from, for people.
  std::string source() const { return lines_->source(); }

 private:
  LabelledText of_command_line() const {
    LabelledText text{
        .name = "", .text = fmt::format("{}", fmt::join(options_.text, " ")), .pair = std::nullopt};
    if (!options_.pair.empty()) text.pair = options_.pair;
    return text;
  }
  LabelledText of_line(std::string line) const {
    LabelledText text{.name = fmt::format("{}, line {}", source(), lines_->count()),
                      .text = std::move(line),
                      .pair = std::nullopt};
    if (!options_.pairs) return text;
    const std::size_t tab = text.text.find('\t');
    if (tab == std::string::npos) {
      raise<DataError>("{} has no tab; with --pairs it must have two texts with one between them",
                       text.name);
    }
    text.pair = text.text.substr(tab + 1);
    text.text.resize(tab);
    return text;
  }

  const PredictFlags& options_;
  std::optional<TextLines> lines_;
  bool done_ = false;
};

// --- what is printed ---

ordered_json json_of(const LabelledText& text) {
  ordered_json json = {{"text", text.text}};
  if (text.pair) json["text_pair"] = *text.pair;
  return json;
}

std::string number(Scores scores, double score) {
  return scores == Scores::kNone ? fmt::format("{:.4f}", score)
                                 : fmt::format("probability {:.4f}", score);
}

// Labels that are right by themselves are shown from one half on, and the best one in any case.
std::string line_of(const std::vector<LabelScore>& found, const Labeller& labeller,
                    std::size_t top_k) {
  std::string line;
  for (std::size_t k = 0; k < found.size() && (k < top_k || found[k].score > 0.5); ++k) {
    if (k >= top_k && labeller.scores() != Scores::kSigmoid) break;
    line += fmt::format("{}{} ({})", k == 0 ? "" : ", ", labeller.labels()[found[k].label],
                        number(labeller.scores(), found[k].score));
  }
  return line;
}

void print_labels(const std::vector<LabelledText>& texts, const PredictFlags& options,
                  Labeller& labeller, std::ostream& output) {
  const auto found = labeller.label_texts(texts, options.labels);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (options.json) {
      ordered_json json = json_of(texts[i]);
      json["labels"] = labels_json(found[i], labeller.labels(), options.top_k);
      output << python_json(json) << '\n';
    } else if (options.file.empty()) {
      output << line_of(found[i], labeller, options.top_k) << '\n';
    } else {
      output << line_of(found[i], labeller, options.top_k) << '\t' << texts[i].text;
      if (texts[i].pair) output << '\t' << *texts[i].pair;
      output << '\n';
    }
  }
}

// A word, its label and the label's probability on each line, an empty line behind each text: the
// form of CoNLL.
void print_words(const LabelledText& text, std::span<const LabelledToken> tokens,
                 const Labeller& labeller, Aggregation aggregation, std::ostream& output) {
  for (const Entity& word : words(tokens, labeller.labels(), aggregation)) {
    output << fmt::format("{}\t{}\t{:.4f}\n",
                          text::slice_code_points(text.text, word.begin, word.end), word.label,
                          word.score);
  }
  output << '\n';
}

void print_tokens(const std::vector<LabelledText>& texts, const PredictFlags& options,
                  Labeller& labeller, std::ostream& output) {
  const std::string ignored[] = {"O"};
  const Aggregation aggregation = *aggregation_of(options.aggregation);
  const auto found = labeller.label_tokens(texts, options.labels);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!options.json) {
      print_words(texts[i], found[i], labeller, aggregation, output);
      continue;
    }
    ordered_json json = json_of(texts[i]);
    json["entities"] = entities_json(
        texts[i].text, entities(found[i], labeller.labels(), aggregation, ignored), aggregation);
    output << python_json(json) << '\n';
  }
}

}  // namespace

int predict(const Invocation& invocation) {
  PredictFlags options;
  if (!parse_options(invocation.words, options)) return 0;
  LabelledTexts texts(options);
  const FoundModel found(options.model, invocation.environment, /*sentence=*/false,
                         models::all_families());
  Labeller labeller(found, label_purpose(found), invocation.environment);
  print_warnings(labeller.model());

  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe, see LineOutput
  LineOutput output(STDOUT_FILENO);
  const auto print = labeller.purpose() == Purpose::kTexts ? print_labels : print_tokens;
  bool any = false;
  for (auto some = texts.next(); !some.empty(); some = texts.next()) {
    any = true;
    print(some, options, labeller, output);
    output.flush();
  }
  if (!any) raise<DataError>("{} has no text in it; expected one on each line", texts.source());
  return 0;
}

}  // namespace tandem::apps
