#include "tandem/tasks/question_answering/features.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/tasks/encode_in_chunks.h"
#include "tandem/text/utf8.h"

namespace tandem::question_answering {
namespace {

// The tokens of many texts, concatenated in order.
struct TokenizedTexts {
  std::vector<std::size_t> begin{0};  // text i has tokens [begin[i], begin[i + 1])
  std::vector<std::int32_t> ids;
  std::vector<text::Span> offsets;  // empty unless asked for
};

// `name(i)` names the text in an error.
TokenizedTexts tokenize(const text::Tokenizer& tokenizer, std::span<const std::string_view> texts,
                        bool with_offsets, FunctionRef<std::string(std::size_t)> name,
                        ThreadPool& threads) {
  struct Chunk {
    std::vector<std::size_t> sizes;
    std::vector<std::int32_t> ids;
    std::vector<text::Span> offsets;
  };
  const auto add = [&](std::size_t i, text::Encoding& encoding, Chunk& chunk) {
    tokenizer.encode(texts[i], encoding);
    chunk.sizes.push_back(encoding.ids.size());
    chunk.ids.insert(chunk.ids.end(), encoding.ids.begin(), encoding.ids.end());
    if (with_offsets) {
      chunk.offsets.insert(chunk.offsets.end(), encoding.offsets.begin(), encoding.offsets.end());
    }
  };
  auto chunks = tasks::encode_in_chunks<Chunk>(texts.size(), threads, name, add);

  TokenizedTexts all;
  all.begin.reserve(texts.size() + 1);
  std::size_t total = 0;
  for (const Chunk& chunk : chunks) total += chunk.ids.size();
  all.ids.reserve(total);
  if (with_offsets) all.offsets.reserve(total);
  for (Chunk& chunk : chunks) {
    for (const std::size_t size : chunk.sizes) all.begin.push_back(all.begin.back() + size);
    tasks::append_and_free(all.ids, chunk.ids);
    tasks::append_and_free(all.offsets, chunk.offsets);
  }
  return all;
}

// An answer in code points of the context.
struct AnswerSpan {
  std::uint64_t begin, end;
};

std::optional<AnswerSpan> first_answer(const data::QuestionExample& example) {
  if (example.answers.empty()) return std::nullopt;
  const data::Answer& answer = example.answers.front();  // run_qa.py trains on the first one only
  const auto begin = static_cast<std::uint64_t>(answer.answer_start);
  return AnswerSpan{begin, begin + text::count_code_points(answer.text)};
}

enum class LabelKind { kAnswer, kNotInWindow, kLastToken };

}  // namespace

// Builds a FeatureSet: texts to tokens in parallel, then tokens to features one example after the
// other.
class FeatureBuilder {
 public:
  FeatureBuilder(const text::Tokenizer& tokenizer, std::span<const data::QuestionExample> examples,
                 const FeatureOptions& options, ThreadPool& threads)
      : tokenizer_(tokenizer),
        examples_(examples.first(std::min(examples.size(), options.max_samples))),
        options_(options),
        threads_(threads) {}

  FeatureSet build() {
    set_.frame_ = tokenizer_.sequence_template();
    set_.statistics_.num_examples = examples_.size();
    choose_max_seq_length();
    tokenize_questions();
    tokenize_contexts();
    for (std::size_t e = 0; e < examples_.size() && !full(); ++e) add_example(e);
    memory_.features.shrink_to_fit();
    set_.features_ = std::move(memory_.features);
    set_.questions_ = std::move(memory_.questions);
    set_.context_of_ = std::move(memory_.context_of);
    set_.contexts_ = std::move(memory_.contexts);
    set_.question_ids_ = std::move(memory_.question_ids);
    set_.context_ids_ = std::move(memory_.context_ids);
    set_.context_offsets_ = std::move(memory_.context_offsets);
    return std::move(set_);
  }

 private:
  using Tokens = FeatureSet::Tokens;

  // The arrays of the set while it is being built.
  struct Memory {
    std::vector<Feature> features;
    std::vector<Tokens> questions;
    std::vector<std::uint32_t> context_of;
    std::vector<Tokens> contexts;
    std::vector<std::int32_t> question_ids;
    std::vector<std::int32_t> context_ids;
    std::vector<text::Span> context_offsets;
  };

  std::size_t special_tokens() const { return set_.frame_.special_tokens_of_pair(); }

  bool full() const { return memory_.features.size() >= options_.max_samples; }

  void choose_max_seq_length() {
    set_.max_seq_length_ = options_.max_seq_length;
    const bool by_model = options_.max_positions < tokenizer_.model_max_length();
    const std::size_t most = by_model ? options_.max_positions : tokenizer_.model_max_length();
    if (options_.max_seq_length > most) {
      set_.statistics_.warnings.push_back(fmt::format(
          "max_seq_length ({}) is larger than the longest sequence of the model, {} ({}): using {}",
          options_.max_seq_length, most,
          by_model ? "max_position_embeddings of its config.json"
                   : "model_max_length of the tokenizer",
          most));
      set_.max_seq_length_ = most;
    }
    if (set_.max_seq_length_ <= special_tokens()) {
      raise<InvalidArgument>(
          "max_seq_length is {}, which leaves no room in addition to {} special tokens; run_qa's "
          "default is 384",
          set_.max_seq_length_, special_tokens());
    }
  }

  void tokenize_questions() {
    std::vector<std::string_view> texts;
    for (const data::QuestionExample& example : examples_) {
      texts.push_back(text::lstrip(example.question));
    }
    const auto name = [&](std::size_t i) { return fmt::format("question '{}'", examples_[i].id); };
    TokenizedTexts tokens = tokenize(tokenizer_, texts, false, name, threads_);
    memory_.questions = ranges(tokens);
    memory_.question_ids = std::move(tokens.ids);
  }

  // Questions of one paragraph share their context's memory (QuestionExample), so each distinct one
  // is tokenized once.
  void tokenize_contexts() {
    std::vector<std::string_view> texts;
    std::vector<std::size_t> first_example;
    memory_.context_of.reserve(examples_.size());
    for (std::size_t e = 0; e < examples_.size(); ++e) {
      const std::string_view context = examples_[e].context;
      const bool same = !texts.empty() && texts.back().data() == context.data() &&
                        texts.back().size() == context.size();
      if (!same) {
        texts.push_back(context);
        first_example.push_back(e);
      }
      memory_.context_of.push_back(static_cast<std::uint32_t>(texts.size() - 1));
    }
    const auto name = [&](std::size_t i) {
      return fmt::format("context of question '{}'", examples_[first_example[i]].id);
    };
    TokenizedTexts tokens = tokenize(tokenizer_, texts, true, name, threads_);
    memory_.contexts = ranges(tokens);
    memory_.context_ids = std::move(tokens.ids);
    memory_.context_offsets = std::move(tokens.offsets);
  }

  static std::vector<Tokens> ranges(const TokenizedTexts& tokens) {
    std::vector<Tokens> out(tokens.begin.size() - 1);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = {tokens.begin[i], tokens.begin[i + 1] - tokens.begin[i]};
    }
    return out;
  }

  void add_example(std::size_t e) {
    const std::string problem = find_problem(e);
    if (!problem.empty()) {
      if (!options_.skip_unusable) raise<DataError>("question '{}': {}", examples_[e].id, problem);
      ++set_.statistics_.num_unusable;
      return;
    }
    const std::size_t context = memory_.contexts[memory_.context_of[e]].size;
    const std::size_t room = set_.max_seq_length_ - special_tokens() - memory_.questions[e].size;
    if (context <= room) {
      add_feature(e, 0, context);
      return;
    }
    for (std::size_t begin = 0; !full(); begin += room - options_.doc_stride) {
      const std::size_t end = std::min(begin + room, context);
      add_feature(e, begin, end - begin);
      if (end == context) break;
    }
  }

  // Why no feature can be made of example e; empty if it can.
  std::string find_problem(std::size_t e) const {
    const std::size_t question = memory_.questions[e].size;
    const std::size_t context = memory_.contexts[memory_.context_of[e]].size;
    const std::size_t length = set_.max_seq_length_;
    if (question + special_tokens() + context > length) {
      if (question + special_tokens() >= length) {
        return fmt::format(
            "it has {} tokens, which leaves no room for the context in max_seq_length {}; raise "
            "--max_seq_length or shorten the question",
            question, length);
      }
      const std::size_t room = length - special_tokens() - question;
      if (options_.doc_stride >= room) {
        return fmt::format(
            "doc_stride {} is not smaller than the {} tokens that max_seq_length {} leaves for the "
            "context with a question of {} tokens; lower --doc_stride or raise --max_seq_length",
            options_.doc_stride, room, length, question);
      }
    }
    if (!options_.labels) return {};
    if (context == 0) return "its context is empty (no token in it), which cannot be trained on";
    if (const auto answer = first_answer(examples_[e]); answer && answer->end == 0) {
      return "its answer is an empty text at position 0, which cannot be trained on";
    }
    return {};
  }

  void add_feature(std::size_t e, std::size_t window_begin, std::size_t window_size) {
    check_.count();
    Feature feature{static_cast<std::uint32_t>(e), static_cast<std::uint32_t>(window_begin),
                    static_cast<std::uint32_t>(window_size), 0, 0};
    if (options_.labels) count(set_label(feature));
    memory_.features.push_back(feature);
    set_.statistics_.num_real_tokens += memory_.questions[e].size + special_tokens() + window_size;
  }

  void count(LabelKind kind) {
    set_.statistics_.num_cls_labels += kind == LabelKind::kNotInWindow;
    set_.statistics_.num_last_token_labels += kind == LabelKind::kLastToken;
  }

  // run_qa.py's labels: the token in which the answer starts is the one before the first that
  // starts behind the answer's start. When the answer starts in the last token of the window that
  // scan runs on, through the [SEP] and the padding, whose offsets are (0, 0), to the end of the
  // sequence; Hugging Face trains on that label, see FeatureStatistics.
  LabelKind set_label(Feature& feature) const {
    const auto answer = first_answer(examples_[feature.example]);
    const Tokens& context = memory_.contexts[memory_.context_of[feature.example]];
    const std::span window =
        std::span(memory_.context_offsets)
            .subspan(context.begin + feature.window_begin, feature.window_size);
    if (!answer || window.front().begin > answer->begin || window.back().end < answer->end) {
      return LabelKind::kNotInWindow;
    }
    const auto first = static_cast<std::uint32_t>(
        set_.frame_.second_begin(memory_.questions[feature.example].size));
    const auto window_end = first + feature.window_size;
    std::uint32_t after_start = first;
    while (after_start < window_end && window[after_start - first].begin <= answer->begin) {
      ++after_start;
    }
    std::uint32_t before_end = window_end;  // the token before this one
    while (before_end > first && window[before_end - 1 - first].end >= answer->end) --before_end;
    feature.start_position = after_start - 1;
    feature.end_position = before_end;
    if (after_start < window_end) return LabelKind::kAnswer;
    if (!options_.fix_last_token_labels) {
      const bool padded = options_.padding == Padding::kMaxSeqLength;
      const auto length =
          padded ? static_cast<std::uint32_t>(set_.max_seq_length_) : window_end + 1;
      feature.start_position = length - 1;
    }
    return LabelKind::kLastToken;
  }

  const text::Tokenizer& tokenizer_;
  const std::span<const data::QuestionExample> examples_;
  const FeatureOptions options_;
  ThreadPool& threads_;
  InterruptionCheck check_;
  FeatureSet set_;
  Memory memory_;
};

std::size_t FeatureSet::bytes() const {
  return features_.size_bytes() + questions_.size_bytes() + context_of_.size_bytes() +
         contexts_.size_bytes() + question_ids_.size_bytes() + context_ids_.size_bytes() +
         context_offsets_.size_bytes();
}

std::size_t FeatureSet::num_real_tokens(std::size_t i) const {
  const Feature& feature = features_[i];
  return questions_[feature.example].size + frame_.special_tokens_of_pair() + feature.window_size;
}

std::size_t FeatureSet::first_context_token(std::size_t i) const {
  return frame_.second_begin(questions_[features_[i].example].size);
}

void FeatureSet::append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                               std::vector<std::int32_t>& types) const {
  text::append_sequence(frame_, question_tokens(i), window_tokens(i), ids, types);
}

std::span<const std::int32_t> FeatureSet::question_tokens(std::size_t i) const {
  const Tokens& question = questions_[features_[i].example];
  return question_ids_.subspan(question.begin, question.size);
}

std::span<const std::int32_t> FeatureSet::window_tokens(std::size_t i) const {
  const Feature& feature = features_[i];
  const Tokens& context = contexts_[context_of_[feature.example]];
  return context_ids_.subspan(context.begin + feature.window_begin, feature.window_size);
}

std::span<const text::Span> FeatureSet::window_offsets(std::size_t i) const {
  const Feature& feature = features_[i];
  const Tokens& context = contexts_[context_of_[feature.example]];
  return context_offsets_.subspan(context.begin + feature.window_begin, feature.window_size);
}

FeatureSet build_features(const text::Tokenizer& tokenizer,
                          std::span<const data::QuestionExample> examples,
                          const FeatureOptions& options, ThreadPool& threads) {
  return FeatureBuilder(tokenizer, examples, options, threads).build();
}

}  // namespace tandem::question_answering
