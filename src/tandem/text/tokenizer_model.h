// One interface for what tokenizers differ in: how a text becomes tokens, and what tokenizer.json
// and the files next to it contain about that. Added tokens, special tokens and the rest of the
// files are Tokenizer's, for all of them.
//
// A type of model is one implementation of TokenizerModel, and one line of the table in
// tokenizer_model.cc. Internal to text. docs/extending/tokenizer_model.md describes how to add one.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/json.h"
#include "tandem/text/tokenizer.h"
#include "tandem/text/tokenizer_files.h"

namespace tandem::text {

// Immutable, so thread-safe.
class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;

  // Appends the tokens of `stretch`, a text between two added tokens, to the first three members
  // of `out`, and counts its words in out.next_word; the rest is scratch. The stretch is valid
  // UTF-8 and begins at code point `index` of the original text. Returns the code point behind it.
  virtual std::uint32_t encode(std::string_view stretch, std::uint32_t index,
                               Encoding& out) const = 0;

  // Appends an added token that was cut out of the raw text, with the white space that it took.
  virtual void append_added_token(std::int32_t id, std::string_view swallowed, Span span,
                                  Encoding& out) const;
};

// The scratch of a model in an Encoding, which it makes on first use.
template <class Scratch>
Scratch& scratch_of(Encoding& encoding) {
  if (auto* scratch = dynamic_cast<Scratch*>(encoding.scratch.get())) return *scratch;
  auto made = std::make_unique<Scratch>();
  Scratch& scratch = *made;
  encoding.scratch = std::move(made);
  return scratch;
}

// The special tokens that a family has unless its files have others.
struct SpecialTokenDefaults {
  std::string_view unk, sep, pad, cls, mask;
  std::string_view bos = {}, eos = {};  // empty: the family has none
  bool normalized = false;              // AddedToken's flag of all but the mask
  bool mask_takes_blanks = false;       // the mask's lstrip
};

// A file to write next to tokenizer.json.
struct VocabularyFile {
  std::string name, content;
};

// The part of tokenizer.json that a type of model reads in addition to the sections in the
// definition.
struct TokenizerJsonSource {
  const std::filesystem::path& path;
  const simdjson::dom::object& model;  // whole, with its vocabulary
};

// Reads {"token": id, …} into definition.vocabulary. Throws DataError that names `path`.
void read_vocabulary_object(simdjson::dom::object vocabulary, const std::filesystem::path& path,
                            TokenizerDefinition& definition);

// A type of model, as "model.type" of tokenizer.json names it: how its parts of a
// TokenizerDefinition are read and written, and how it is made of one. Readers throw DataError that
// names the file.
struct TokenizerModelType {
  std::string_view name;
  // The vocabulary of a directory without tokenizer.json.
  std::string_view vocabulary_file;
  // The class in transformers, unless the files or the model next to them name another.
  std::string_view tokenizer_class;
  SpecialTokenDefaults special_tokens;

  // Whether tokenizer.json's model section is of this type; `named` is its "type" or "none",
  // `settings` the section without the vocabulary.
  bool (*is_type_of)(std::string_view named, const nlohmann::ordered_json& settings,
                     const simdjson::dom::object& model);
  // Reads the vocabulary and checks and reads the sections of definition.tokenizer_json.
  void (*read_json)(const TokenizerJsonSource& source, TokenizerDefinition& definition);
  // Reads the content of vocabulary_file, which is `path`.
  void (*read_vocabulary)(std::string_view text, const std::filesystem::path& path,
                          TokenizerDefinition& definition);
  // Applies the keys of tokenizer_config.json that the class in transformers,
  // definition.tokenizer_class, reads; these win.
  void (*apply_config)(const nlohmann::ordered_json& config, const std::filesystem::path& path,
                       TokenizerDefinition& definition);

  // The sections of tokenizer.json from "normalizer" on, and the type's keys of
  // tokenizer_config.json.
  nlohmann::ordered_json (*sections)(const TokenizerDefinition& definition);
  void (*write_config)(const TokenizerDefinition& definition, nlohmann::ordered_json& config);
  // vocabulary_file and what belongs to it.
  std::vector<VocabularyFile> (*vocabulary_files)(const TokenizerDefinition& definition);

  // `definition` outlives the model.
  std::unique_ptr<TokenizerModel> (*make)(const TokenizerDefinition& definition);
};

// In the order in which messages list them.
std::span<const TokenizerModelType> tokenizer_model_types();

}  // namespace tandem::text
