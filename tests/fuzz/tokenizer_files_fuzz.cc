// The files of a tokenizer. The first byte decides which: as a rule each begins with another, and
// JSON may begin with any blank. An accepted tokenizer encodes texts with ids of its vocabulary and
// offsets inside of the text, and what it saves is accepted and gives the same. Files are read from
// a folder, so each input goes through one.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/text/tokenizer.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem;

// Removed at the end of the process.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tandem-fuzz-XXXXXX").native();
    fuzz::require(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

constexpr std::string_view kText = "The [MASK] captain's caf\u00e9, \u4e2d\u6587! unaffable";
constexpr std::uint32_t kCodePoints = 40;

void encode(const text::Tokenizer& tokenizer, text::Encoding& encoding) {
  tokenizer.encode(kText, encoding);
  fuzz::require(encoding.ids.size() == encoding.offsets.size());
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    fuzz::require(encoding.ids[i] >= 0 &&
                  static_cast<std::size_t>(encoding.ids[i]) < tokenizer.vocab_size());
    fuzz::require(encoding.offsets[i].begin <= encoding.offsets[i].end &&
                  encoding.offsets[i].end <= kCodePoints);
  }
}

constexpr std::string_view kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncaptain\n##s\n'\ncafe\n!\n";

const char* file_of(std::string_view input) {
  switch (input.empty() ? '{' : input.front()) {
    case '#':
      return "merges.txt";
    case '\n':
      return "sentencepiece.bpe.model";
    case '[':
      return "vocab.txt";
    case ' ':
      return "tokenizer_config.json";
    case '\t':
      return "special_tokens_map.json";
    case '\r':
      return "added_tokens.json";
    default:
      return "tokenizer.json";
  }
}

void write(const fs::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder, saved;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const std::string_view name : text::Tokenizer::kFiles) {
    fs::remove(folder.path() / name);  // a new file costs less than one that is cut
    fs::remove(saved.path() / name);
  }
  static const std::string vocabulary =
      read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/roberta/vocab.json");
  const bool has_vocab_txt =
      !input.empty() && std::string_view(" \t\r").find(input.front()) != std::string_view::npos;
  if (has_vocab_txt) write(folder.path() / "vocab.txt", kVocabulary);
  if (input.starts_with('#')) write(folder.path() / "vocab.json", vocabulary);
  write(folder.path() / file_of(input), input);
  // A merge of five bytes is a pair of texts of JSON and five lines of the file that is written, in
  // a text that doubles while it grows. The vocabulary takes the rest.
  const fuzz::MemoryLimit limit(384 * size + (std::size_t{4} << 20));
  text::Encoding encoding, again;
  try {
    const text::Tokenizer tokenizer = text::Tokenizer::load(folder.path());
    encode(tokenizer, encoding);
    tokenizer.save(saved.path());
  } catch (const DataError&) {
    return 0;
  }
  encode(text::Tokenizer::load(saved.path()), again);
  fuzz::require(encoding.ids == again.ids && encoding.offsets == again.offsets);
  return 0;
}
