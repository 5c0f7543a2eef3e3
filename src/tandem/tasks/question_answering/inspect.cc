#include "tandem/tasks/question_answering/inspect.h"

#include <array>
#include <cmath>
#include <istream>
#include <ostream>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::question_answering {
namespace {

using Json = nlohmann::ordered_json;

std::string to_line(const Json& json) { return json.dump(-1, ' ', true) + "\n"; }

// Offsets of the real tokens, −1 outside of the context.
Json context_offsets(const FeatureSet& features, std::size_t i, std::size_t real) {
  const std::size_t begin = features.first_context_token(i);
  const auto spans = features.window_offsets(i);
  Json pairs = Json::array();
  for (std::size_t at = 0; at < real; ++at) {
    const bool in_context = at >= begin && at - begin < spans.size();
    pairs.push_back(in_context ? Json{spans[at - begin].begin, spans[at - begin].end}
                               : Json{-1, -1});
  }
  return pairs;
}

Json header(const FeatureSet& features, const FeatureOptions& options) {
  const FeatureStatistics& statistics = features.statistics();
  const std::size_t total = features.size() * features.max_seq_length();
  const double share =
      total == 0 ? 0 : static_cast<double>(statistics.num_real_tokens) / static_cast<double>(total);
  Json line = {{"set", options.labels ? "train" : "eval"},
               {"examples", statistics.num_examples},
               {"features", features.size()},
               {"max_length", features.max_seq_length()},
               {"stride", options.doc_stride},
               {"real_tokens", statistics.num_real_tokens},
               {"total_tokens", total},
               {"real_share", std::round(share * 1e6) / 1e6}};
  if (options.labels) {
    line["cls_labelled"] = statistics.num_cls_labels;
    line["last_token_labels"] = statistics.num_last_token_labels;
  }
  return line;
}

Json feature_line(const FeatureSet& features, std::size_t i,
                  std::span<const data::QuestionExample> examples, bool labels, bool full) {
  const std::array<std::uint32_t, 1> indices = {static_cast<std::uint32_t>(i)};
  nn::PackedBatch rows;
  tasks::fill_batch(features, indices, Padding::kMaxSeqLength, 0, rows);
  const std::size_t real = rows.key_count[0];
  rows.input_ids.resize(real);
  rows.token_type_ids.resize(real);
  const Feature& feature = features[i];
  Json line = {
      {"i", i},         {"example", feature.example},  {"id", examples[feature.example].id},
      {"n_real", real}, {"input_ids", rows.input_ids}, {"token_type_ids", rows.token_type_ids}};
  if (labels) {
    line["start"] = feature.start_position;
    line["end"] = feature.end_position;
  }
  if (full) line["first_type1"] = features.first_context_token(i);
  if (full || !labels) line["offsets"] = context_offsets(features, i, real);
  return line;
}

// A text, or an array of its words.
void encode(const text::Tokenizer& tokenizer, const Json& text, text::Encoding& encoding) {
  if (!text.is_array()) {
    tokenizer.encode(text.get_ref<const std::string&>(), encoding);
    return;
  }
  std::vector<std::string_view> words;
  for (const Json& word : text) words.push_back(word.get_ref<const std::string&>());
  tokenizer.encode_words(words, encoding);
}

Json tokens_line(const text::Tokenizer& tokenizer, const Json& text,
                 const text::Encoding& encoding) {
  Json line = {{"text", text},
               {"input_ids", Json::array()},
               {"tokens", Json::array()},
               {"offsets", Json::array()},
               {"word_ids", Json::array()}};
  const auto append = [&](std::int32_t id, const text::Span& span, const Json& word) {
    line["input_ids"].push_back(id);
    line["tokens"].push_back(tokenizer.token(id));
    line["offsets"].push_back({span.begin, span.end});
    line["word_ids"].push_back(word);
  };
  const text::TextFrame frame = tokenizer.text_frame();
  if (frame.begin) append(*frame.begin, {0, 0}, nullptr);
  for (std::size_t i = 0; i < encoding.ids.size(); ++i)
    append(encoding.ids[i], encoding.offsets[i], encoding.word_ids[i]);
  if (frame.end) append(*frame.end, {0, 0}, nullptr);
  return line;
}

}  // namespace

void inspect_tokens(const text::Tokenizer& tokenizer, bool json, std::istream& input,
                    std::ostream& output) {
  text::Encoding encoding;
  std::string line;
  for (std::size_t number = 1; std::getline(input, line); ++number) {
    try {
      const Json text = json ? Json::parse(line) : Json(line);
      encode(tokenizer, text, encoding);
      output << to_line(tokens_line(tokenizer, text, encoding));
    } catch (const DataError& error) {
      raise<DataError>("line {}: {}", number, error.what());
    } catch (const Json::exception& error) {
      raise<DataError>("line {}: expected a JSON string or an array of strings: {}", number,
                       json_reason(error.what()));
    }
  }
}

void inspect_features(const FeatureSet& features, std::span<const data::QuestionExample> examples,
                      const FeatureOptions& options, bool full, std::ostream& output) {
  output << to_line(header(features, options));
  for (std::size_t i = 0; i < features.size(); ++i) {
    output << to_line(feature_line(features, i, examples, options.labels, full));
  }
}

}  // namespace tandem::question_answering
