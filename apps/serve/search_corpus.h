// The texts that `tandem serve --corpus FILE` searches.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tandem::apps {

struct CorpusText {
  std::string id;    // id in the file, else the number of the line
  std::string text;  // UTF-8, not blank
  std::size_t line = 0;
};

struct CorpusLimits {
  std::size_t texts = 1'000'000;
  std::size_t bytes = std::size_t{1} << 30;  // bytes of all texts
};

// A text on each line; if the file's name ends with .jsonl, an object with "text", and perhaps
// "_id" or "id" (a string or an integer) and "title", which is put in front of the text, as in
// BEIR's corpora. Blank lines and empty texts are left out. Throws IoError, and DataError that
// names file and line.
std::vector<CorpusText> read_corpus(const std::string& path, const CorpusLimits& limits = {});

}  // namespace tandem::apps
