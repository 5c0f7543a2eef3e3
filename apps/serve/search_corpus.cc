#include "apps/serve/search_corpus.h"

#include <utility>

#include "apps/command/text_lines.h"
#include "apps/command/text_rows.h"
#include "tandem/core/error.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {
namespace {

CorpusText read_line(std::string line, std::size_t number, bool is_json) {
  CorpusText text{.id = std::to_string(number), .text = "", .line = number};
  if (const auto at = text::find_invalid_utf8(line))
    raise<DataError>("byte {} is not UTF-8; convert the file to UTF-8", *at + 1);
  if (!is_json) {
    text.text = std::move(line);
    return text;
  }
  TextRow row = parse_text_row(line);
  if (row.id) text.id = std::move(*row.id);
  text.text = std::move(row.text);
  return text;
}

}  // namespace

std::vector<CorpusText> read_corpus(const std::string& path, const CorpusLimits& limits) {
  TextLines lines(path);
  const bool is_json = has_text_rows(path);
  std::vector<CorpusText> texts;
  std::size_t bytes = 0;
  for (std::string line; lines.next(line);) {
    if (is_blank(line)) continue;
    try {
      CorpusText text = read_line(std::move(line), lines.count(), is_json);
      bytes += text.text.size();
      if (is_blank(text.text)) continue;
      texts.push_back(std::move(text));
    } catch (const DataError& error) {
      raise<DataError>("{}, line {}: {}", lines.source(), lines.count(), error.what());
    }
    if (texts.size() > limits.texts || bytes > limits.bytes) {
      raise<DataError>(
          "{} is too large to be searched: expected at most {} texts of {} bytes together; serve a "
          "part of it",
          lines.source(), limits.texts, limits.bytes);
    }
  }
  if (texts.empty())
    raise<DataError>("{} has no text in it; expected one on each line", lines.source());
  return texts;
}

}  // namespace tandem::apps
