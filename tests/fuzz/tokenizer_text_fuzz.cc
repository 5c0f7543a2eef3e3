// Texts through the demo's tokenizer and small ones of RoBERTa and XLM-R, whose vocabularies hold
// every kind of entry: the ids are of the vocabulary, the offsets ascend inside of the text, and a
// thread's memory of earlier texts changes nothing.
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/text/tokenizer.h"
#include "tandem/text/utf8.h"

using namespace tandem;

namespace {

text::Tokenizer load(std::string_view folder, bool prefix_space = false) {
  const auto directory = std::filesystem::path(TANDEM_SOURCE_DIR) / folder;
  return text::Tokenizer::load(directory, {.add_prefix_space = prefix_space});
}

void check(const text::Tokenizer& tokenizer, text::Encoding& reused, std::string_view text) {
  text::Encoding fresh;
  try {
    tokenizer.encode(text, fresh);
    tokenizer.encode(text, reused);
  } catch (const DataError&) {
    fuzz::require(text::find_invalid_utf8(text).has_value());
    return;
  }
  fuzz::require(!text::find_invalid_utf8(text));
  fuzz::require(fresh.ids == reused.ids && fresh.offsets == reused.offsets &&
                fresh.word_ids == reused.word_ids);
  fuzz::require(fresh.ids.size() == fresh.offsets.size() &&
                fresh.ids.size() == fresh.word_ids.size());
  const std::size_t length = text::count_code_points(text);
  text::Span last;
  std::uint32_t last_word = 0;
  for (std::size_t i = 0; i < fresh.ids.size(); ++i) {
    const text::Span span = fresh.offsets[i];
    fuzz::require(fresh.ids[i] >= 0 &&
                  static_cast<std::size_t>(fresh.ids[i]) < tokenizer.vocab_size());
    // An empty span stands where a token was nothing but blanks, behind them.
    const bool empty = span.begin == span.end;
    fuzz::require((empty || span.begin >= last.begin) && span.begin <= span.end &&
                  span.end <= length);
    fuzz::require(fresh.word_ids[i] >= last_word && fresh.word_ids[i] < fresh.next_word);
    if (!empty) last = span;
    last_word = fresh.word_ids[i];
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kSmall = "tests/parity/golden/tokenizers/";
  static const text::Tokenizer kTokenizers[] = {load("examples/demo/model"),
                                                load(std::string(kSmall) + "mpnet"),
                                                load(std::string(kSmall) + "roberta"),
                                                load(std::string(kSmall) + "roberta", true),
                                                load(std::string(kSmall) + "xlmr"),
                                                load(std::string(kSmall) + "xlmr_older"),
                                                load(std::string(kSmall) + "modernbert")};
  static text::Encoding reused[std::size(kTokenizers)];
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // A byte is a character of normalized text and a token with its place, in two encodings of each
  // of seven tokenizers; those of a thread stay as large as its largest text made them.
  const fuzz::MemoryLimit limit(640 * size + (std::size_t{1} << 20));
  for (std::size_t i = 0; i < std::size(kTokenizers); ++i) check(kTokenizers[i], reused[i], text);
  return 0;
}
