// Shared by the tests of this folder: a tokenizer of a handful of words, and sentences made in
// place.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/tasks/token_classification/sentences.h"
#include "tandem/text/tokenizer.h"

namespace tandem::token_classification::testing {

// ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 [MASK], 5 "a", 6 "b", …, 30 "z", 31 "##s".
inline text::Tokenizer letter_tokenizer(int model_max_length = 512) {
  const tandem::testing::TemporaryFolder folder;
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (char c = 'a'; c <= 'z'; ++c) vocabulary += std::string(1, c) + "\n";
  write_file(folder / "vocab.txt", vocabulary + "##s\n");
  write_file(folder / "tokenizer_config.json",
             fmt::format("{{\"model_max_length\": {}}}", model_max_length));
  return text::Tokenizer::load(folder.path());
}

inline SentenceSet read_json(const std::string& text, const SentenceOptions& options = {},
                             const SentenceColumns& columns = {}) {
  return read_sentences("rows.json", std::as_bytes(std::span(text)), columns, options);
}

// Rows of "word/tag".
inline SentenceSet sentences(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const auto& row : rows) {
    auto line =
        nlohmann::json{{"tokens", nlohmann::json::array()}, {"ner_tags", nlohmann::json::array()}};
    for (const std::string& pair : row) {
      const std::size_t slash = pair.rfind('/');
      line["tokens"].push_back(pair.substr(0, slash));
      line["ner_tags"].push_back(pair.substr(slash + 1));
    }
    text += line.dump() + "\n";
  }
  return read_json(text);
}

}  // namespace tandem::token_classification::testing
