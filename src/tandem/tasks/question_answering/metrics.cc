#include "tandem/tasks/question_answering/metrics.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>

#include "tandem/core/error.h"
#include "tandem/text/utf8.h"

namespace tandem::question_answering {
namespace {

using Words = std::vector<std::string_view>;

// Python's str.lower(): full mappings with the context rule of the final sigma, no locale.
std::string lower(std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
  std::string out;
  if (ascii) {
    out.assign(text);
    for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return out;
  }
  icu::UnicodeString utf16 =
      icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  utf16.toLower(icu::Locale::getRoot()).toUTF8String(out);
  return out;
}

bool is_ascii_punctuation(char c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
         (c >= 123 && c <= 126);
}

// \w of Python's `re`: str.isalnum() or "_".
bool is_word_character(char32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  }
  const auto code = static_cast<UChar32>(c);
  return u_isalpha(code) || u_getIntPropertyValue(code, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

bool is_article(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

// re.sub(r"\b(a|an|the)\b", " ", text): a run of word characters that is an article.
std::string remove_articles(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const bool word = is_word_character(text::next_code_point(text, at));
    if (word) {
      for (std::size_t next = at; next < text.size(); at = next) {
        if (!is_word_character(text::next_code_point(text, next))) break;
      }
    }
    const std::string_view run = text.substr(begin, at - begin);
    out += word && is_article(run) ? std::string_view(" ") : run;
  }
  return out;
}

// str.split().
Words split(std::string_view text) {
  Words words;
  for (std::size_t at = 0, begin = 0; begin < text.size(); begin = at) {
    if (text::is_python_space(text::next_code_point(text, at))) continue;
    for (std::size_t next = at; next < text.size(); at = next) {
      if (text::is_python_space(text::next_code_point(text, next))) break;
    }
    words.push_back(text.substr(begin, at - begin));
  }
  return words;
}

// Size of the intersection of two bags of words.
std::size_t num_common(Words a, Words b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  Words common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common.size();
}

double overlap_f1(const Words& prediction, const Words& gold) {
  const auto common = static_cast<double>(num_common(prediction, gold));
  if (common == 0) return 0;
  const double precision = 1.0 * common / static_cast<double>(prediction.size());
  const double recall = 1.0 * common / static_cast<double>(gold.size());
  return (2 * precision * recall) / (precision + recall);
}

std::vector<std::string_view> gold_texts(const data::QuestionExample& example) {
  std::vector<std::string_view> golds;
  for (const data::Answer& answer : example.answers) golds.push_back(answer.text);
  return golds;
}

void check_sizes(std::size_t examples, std::size_t predictions) {
  if (examples != predictions || examples == 0) {
    raise<InvalidArgument>("cannot score {} predictions of {} questions", predictions, examples);
  }
}

// Sums of scores over some questions.
struct Total {
  double exact = 0, f1 = 0;
  std::size_t count = 0;
  void add(const Score& score) {
    exact += score.exact;
    f1 += score.f1;
    ++count;
  }
  double percent(double sum) const { return 100.0 * sum / static_cast<double>(count); }
};

// find_best_thresh of the squad_v2 module when all no-answer probabilities are 0: the running sum
// of gains over the questions in prediction order, starting from the number of questions without
// answer; its maximum.
class BestThreshold {
 public:
  explicit BestThreshold(std::size_t num_without_answer)
      : current_(static_cast<double>(num_without_answer)), best_(current_) {}
  void add(bool has_answer, bool predicted_empty, double score) {
    current_ += has_answer ? score : predicted_empty ? 0.0 : -1.0;
    best_ = std::max(best_, current_);
  }
  double percent(std::size_t count) const { return 100.0 * best_ / static_cast<double>(count); }

 private:
  double current_, best_;
};

}  // namespace

std::string normalize_answer(std::string_view answer) {
  std::string text = lower(answer);
  std::erase_if(text, is_ascii_punctuation);
  text = remove_articles(text);
  std::string out;
  for (const std::string_view word : split(text)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

Score squad_score(std::string_view prediction, std::span<const std::string_view> golds) {
  const std::string predicted = normalize_answer(prediction);
  Score best;
  for (const std::string_view gold : golds) {
    const std::string expected = normalize_answer(gold);
    best.exact = std::max(best.exact, predicted == expected ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, overlap_f1(split(predicted), split(expected)));
  }
  return best;
}

Score squad_v2_score(std::string_view prediction, std::span<const std::string_view> golds) {
  const std::string predicted = normalize_answer(prediction);
  std::vector<std::string> expected;
  for (const std::string_view gold : golds) {
    std::string normalized = normalize_answer(gold);
    if (!normalized.empty()) expected.push_back(std::move(normalized));
  }
  if (expected.empty()) expected.emplace_back();  // no answer is the answer
  Score best;
  for (const std::string& gold : expected) {
    const double exact = predicted == gold ? 1.0 : 0.0;
    const bool either_empty = predicted.empty() || gold.empty();
    best.exact = std::max(best.exact, exact);
    best.f1 = std::max(best.f1, either_empty ? exact : overlap_f1(split(predicted), split(gold)));
  }
  return best;
}

void check_answered(std::span<const data::QuestionExample> examples) {
  for (const data::QuestionExample& example : examples) {
    if (!example.answers.empty()) continue;
    raise<DataError>(
        "question '{}' has no answer to compare with, which the squad metric does not allow; for "
        "data with unanswerable questions pass --version_2_with_negative",
        example.id);
  }
}

Metrics squad_metrics(std::span<const data::QuestionExample> examples,
                      std::span<const std::string_view> predictions) {
  check_sizes(examples.size(), predictions.size());
  check_answered(examples);
  Total total;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    total.add(squad_score(predictions[i], gold_texts(examples[i])));
  }
  return {{"exact_match", total.percent(total.exact)}, {"f1", total.percent(total.f1)}};
}

Metrics squad_v2_metrics(std::span<const data::QuestionExample> examples,
                         std::span<const std::string_view> predictions) {
  check_sizes(examples.size(), predictions.size());
  const auto without_answer = static_cast<std::size_t>(
      std::count_if(examples.begin(), examples.end(),
                    [](const data::QuestionExample& example) { return example.answers.empty(); }));
  Total total, has_answer, no_answer;
  BestThreshold best_exact(without_answer), best_f1(without_answer);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const bool answerable = !examples[i].answers.empty();
    const Score score = squad_v2_score(predictions[i], gold_texts(examples[i]));
    total.add(score);
    (answerable ? has_answer : no_answer).add(score);
    best_exact.add(answerable, predictions[i].empty(), score.exact);
    best_f1.add(answerable, predictions[i].empty(), score.f1);
  }
  Metrics metrics;
  const auto append = [&](const std::string& prefix, const Total& part) {
    if (part.count == 0) return;
    metrics.emplace_back(prefix + "exact", part.percent(part.exact));
    metrics.emplace_back(prefix + "f1", part.percent(part.f1));
    metrics.emplace_back(prefix + "total", static_cast<double>(part.count));
  };
  append("", total);
  append("HasAns_", has_answer);
  append("NoAns_", no_answer);
  metrics.emplace_back("best_exact", best_exact.percent(total.count));
  metrics.emplace_back("best_exact_thresh", 0.0);
  metrics.emplace_back("best_f1", best_f1.percent(total.count));
  metrics.emplace_back("best_f1_thresh", 0.0);
  return metrics;
}

}  // namespace tandem::question_answering
