#include "tandem/tasks/question_answering/inspect.h"

#include <zlib.h>

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
using Ints = std::vector<std::int32_t>;

std::string to_line(const Json& json) { return json.dump(-1, ' ', true) + "\n"; }

// crc32 of the numbers as little-endian 32-bit integers.
std::uint64_t checksum(const Ints& values) {
  std::vector<unsigned char> bytes;
  bytes.reserve(values.size() * 4);
  for (const std::int32_t value : values) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<unsigned char>(static_cast<std::uint32_t>(value) >> shift));
    }
  }
  return crc32(0, bytes.data(), static_cast<uInt>(bytes.size()));
}

// Pairs of offsets over the padded sequence, −1 outside of the context.
Ints padded_offsets(const FeatureSet& features, std::size_t i) {
  Ints out(2 * features.max_seq_length(), -1);
  std::size_t at = 2 * features.first_context_token(i);
  for (const text::Span& span : features.window_offsets(i)) {
    out[at++] = static_cast<std::int32_t>(span.begin);
    out[at++] = static_cast<std::int32_t>(span.end);
  }
  return out;
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
  Ints mask(rows.input_ids.size(), 0);
  std::fill_n(mask.begin(), real, 1);
  const Feature& feature = features[i];
  Json line = {{"i", i},
               {"example", feature.example},
               {"n_real", real},
               {"ids", checksum(rows.input_ids)},
               {"types", checksum(rows.token_type_ids)},
               {"mask", checksum(mask)}};
  const Ints offsets = padded_offsets(features, i);
  if (labels) {
    line["start"] = feature.start_position;
    line["end"] = feature.end_position;
  } else {
    line["offsets"] = checksum(offsets);
  }
  if (full) {
    rows.input_ids.resize(real);
    line["id"] = examples[feature.example].id;
    line["input_ids"] = rows.input_ids;
    line["first_type1"] = features.first_context_token(i);
    Json pairs = Json::array();
    for (std::size_t at = 0; at < real; ++at)
      pairs.push_back({offsets[2 * at], offsets[2 * at + 1]});
    line["offsets_real"] = pairs;
  }
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
  append(tokenizer.sequence_template().cls_id, {0, 0}, nullptr);
  for (std::size_t i = 0; i < encoding.ids.size(); ++i)
    append(encoding.ids[i], encoding.offsets[i], encoding.word_ids[i]);
  append(tokenizer.sequence_template().sep_id, {0, 0}, nullptr);
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
