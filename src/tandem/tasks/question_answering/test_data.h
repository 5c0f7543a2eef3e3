// Shared by the tests of this folder: a tokenizer of a handful of words, and question sets made in
// place.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/data/question_example.h"
#include "tandem/text/tokenizer.h"

namespace tandem::question_answering::testing {

// ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 [MASK], 5 "a", 6 "b", …, 30 "z", 31 "##s", 32 ".".
inline text::Tokenizer letter_tokenizer(int model_max_length = 512) {
  const tandem::testing::TemporaryFolder folder;
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (char c = 'a'; c <= 'z'; ++c) vocabulary += std::string(1, c) + "\n";
  write_file(folder / "vocab.txt", vocabulary + "##s\n.\n");
  write_file(folder / "tokenizer_config.json",
             fmt::format("{{\"model_max_length\": {}}}", model_max_length));
  return text::Tokenizer::load(folder.path());
}

struct Question {
  std::string id, question, context;
  std::vector<data::Answer> answers;
};

inline data::QuestionSet make_questions(const std::vector<Question>& questions) {
  data::QuestionSet::Builder builder;
  for (const Question& q : questions) {
    builder.add({q.id, "", q.context, q.question, q.answers});
  }
  return builder.finish();
}

}  // namespace tandem::question_answering::testing
