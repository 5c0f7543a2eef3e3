// Reads and writes BERT's normalizer, words and WordPiece in the files of a tokenizer.
#include <optional>
#include <utility>

#include "tandem/core/json.h"
#include "tandem/text/json_text.h"
#include "tandem/text/post_processor.h"
#include "tandem/text/tokenizer_json.h"
#include "tandem/text/tokenizer_model.h"
#include "tandem/text/utf8.h"
#include "tandem/text/wordpiece_model.h"

namespace tandem::text {
namespace {

namespace dom = simdjson::dom;
using Path = std::filesystem::path;

void read_model(const TokenizerJsonSource& source, TokenizerDefinition& d) {
  const Path& path = source.path;
  const Json& settings = member(d.tokenizer_json, "model");
  WordPieceOptions& options = d.wordpiece;
  d.unk_token = value_or(settings, "unk_token", d.unk_token, path);
  options.continuing_subword_prefix =
      value_or(settings, "continuing_subword_prefix", options.continuing_subword_prefix, path);
  options.max_input_chars_per_word =
      value_or(settings, "max_input_chars_per_word", options.max_input_chars_per_word, path);
  read_vocabulary_object(dom::object(source.model["vocab"]), path, d);
}

std::optional<bool> optional_bool(const Json& object, const char* key, const Path& path) {
  if (member(object, key).is_null()) return std::nullopt;
  return value_or(object, key, false, path);
}

void expect_type(const Json& section, const char* name, std::string_view expected,
                 const Path& path) {
  const auto type = value_or<std::string>(section, "type", "none", path);
  if (type != expected) {
    raise<DataError>("'{}': the {} is \"{}\", expected \"{}\"", path.string(), name, type,
                     expected);
  }
}

void read_normalizer(const Path& path, TokenizerDefinition& d) {
  const Json& normalizer = member(d.tokenizer_json, "normalizer");
  if (normalizer.is_null()) {
    d.wordpiece.normalizer = {false, false, false, false};
    return;
  }
  expect_type(normalizer, "normalizer", "BertNormalizer", path);
  d.wordpiece.normalizer.clean_text = value_or(normalizer, "clean_text", true, path);
  d.wordpiece.normalizer.handle_chinese_chars =
      value_or(normalizer, "handle_chinese_chars", true, path);
  d.wordpiece.normalizer.strip_accents = optional_bool(normalizer, "strip_accents", path);
  d.wordpiece.normalizer.lowercase = value_or(normalizer, "lowercase", true, path);
}

void check_pre_tokenizer(const Path& path, const TokenizerDefinition& d) {
  const Json& section = member(d.tokenizer_json, "pre_tokenizer");
  if (section.is_null()) {
    raise<DataError>("'{}': no pre_tokenizer, expected \"BertPreTokenizer\"", path.string());
  }
  expect_type(section, "pre_tokenizer", "BertPreTokenizer", path);
}

// Whether the class is MPNet's, which puts two separators between the texts of a pair.
bool is_mpnet(const TokenizerDefinition& d) { return d.tokenizer_class == "MPNetTokenizer"; }

// transformers 5 builds the tokenizer of a class anew from its vocabulary and its settings.
void note_what_versions_differ_in(TokenizerDefinition& d) {
  const WordPieceOptions usual;
  const auto note = [&](std::string_view what) {
    d.notes.push_back(
        fmt::format("tokenizer.json has {}; tandem follows it, as transformers 4 (transformers 5 "
                    "builds {} anew)",
                    what, d.tokenizer_class));
  };
  if (!d.wordpiece.normalizer.clean_text) note("clean_text = false");
  if (d.wordpiece.max_input_chars_per_word != usual.max_input_chars_per_word)
    note(fmt::format("max_input_chars_per_word = {}", d.wordpiece.max_input_chars_per_word));
  if (d.wordpiece.continuing_subword_prefix != usual.continuing_subword_prefix)
    note(fmt::format("continuing_subword_prefix = \"{}\"", d.wordpiece.continuing_subword_prefix));
  const bool usual_frame = is_mpnet(d) ? d.frame.num_separators == 2
                                       : d.frame.num_separators == 1 && d.frame.second_type_id == 1;
  if (!usual_frame) note("a post_processor that is not the class's");
}

Json optional_json(std::optional<bool> value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

// Files written before "type" existed are recognised by WordPiece's own settings.
bool is_wordpiece(std::string_view named, const Json& settings, const dom::object& model) {
  dom::object vocabulary;
  if (model["vocab"].get(vocabulary)) return false;
  return named == "WordPiece" || (named == "none" && settings.contains("max_input_chars_per_word"));
}

void read_wordpiece_json(const TokenizerJsonSource& source, TokenizerDefinition& definition) {
  read_model(source, definition);
  read_normalizer(source.path, definition);
  check_pre_tokenizer(source.path, definition);
  definition.wordpiece.trims_with_prefix_space =
      apply_post_processor(source.path, definition).trims_with_prefix_space;
}

void read_vocab_txt(std::string_view text, const Path& path, TokenizerDefinition& definition) {
  if (const auto invalid = find_invalid_utf8(text)) {
    raise<DataError>("'{}': {}: not UTF-8", path.string(), describe_position(text, *invalid));
  }
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    definition.vocabulary.emplace_back(line);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
}

// BertTokenizerFast sets its own three settings (with defaults for those that tokenizer_config.json
// lacks) over the normalizer it has read.
void apply_wordpiece_config(const Json& config, const Path& path, TokenizerDefinition& d) {
  if (d.exact) return;  // keeps the rules of tokenizer.json
  const bool read = !d.tokenizer_json.is_null();
  if (!read && is_mpnet(d)) d.frame.num_separators = 2;
  if (read && member(d.tokenizer_json, "normalizer").is_null()) {
    // transformers 4 does not read such a file, and 5 gives the class its own normalizer.
    d.tokenizer_json["normalizer"] = {{"type", "BertNormalizer"}};
    d.wordpiece.normalizer = NormalizerOptions{};
  }
  NormalizerOptions& normalizer = d.wordpiece.normalizer;
  normalizer.lowercase = value_or(config, "do_lower_case", true, path);
  // MPNetTokenizerFast keeps the rule of tokenizer.json's normalizer for ideographs.
  if (!read || !is_mpnet(d))
    normalizer.handle_chinese_chars = value_or(config, "tokenize_chinese_chars", true, path);
  normalizer.strip_accents = optional_bool(config, "strip_accents", path);
  if (read) note_what_versions_differ_in(d);
}

void lower_case_in_front(const Path& directory, TokenizerDefinition& d) {
  if (d.model_type->name != "WordPiece") {
    raise<DataError>(
        "'{}': do_lower_case is true next to a {} tokenizer; tandem has it for WordPiece alone. "
        "Set "
        "it to false, and put texts into lower case before",
        directory.string(), d.model_type->name);
  }
  NormalizerOptions& normalizer = d.wordpiece.normalizer;
  normalizer.strip_accents = normalizer.strips_accents();
  normalizer.lowercase = true;
}

Json wordpiece_sections(const TokenizerDefinition& d) {
  const Json& source = d.tokenizer_json;
  const auto keep = [&](const char* key, Json otherwise) {
    const Json& value = member(source, key);
    return value.is_null() ? otherwise : value;
  };
  const bool has_normalizer = source.is_null() || !member(source, "normalizer").is_null();
  const NormalizerOptions& n = d.wordpiece.normalizer;
  const Json normalizer = {{"type", "BertNormalizer"},
                           {"clean_text", n.clean_text},
                           {"handle_chinese_chars", n.handle_chinese_chars},
                           {"strip_accents", optional_json(n.strip_accents)},
                           {"lowercase", n.lowercase}};
  Json model = {{"type", "WordPiece"},
                {"unk_token", d.unk_token},
                {"continuing_subword_prefix", d.wordpiece.continuing_subword_prefix},
                {"max_input_chars_per_word", d.wordpiece.max_input_chars_per_word}};
  append_entry(model, "vocab", vocabulary_json(d));
  return {
      {"normalizer", has_normalizer ? normalizer : Json(nullptr)},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       keep("post_processor", template_processing(d.cls_token, d.frame.cls_id, d.sep_token,
                                                  d.frame.sep_id, d.frame.num_separators, 1))},
      {"decoder", keep("decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}})},
      {"model", std::move(model)}};
}

void write_wordpiece_config(const TokenizerDefinition& d, Json& config) {
  config["do_lower_case"] = d.wordpiece.normalizer.lowercase;
  config["strip_accents"] = optional_json(d.wordpiece.normalizer.strip_accents);
  config["tokenize_chinese_chars"] = d.wordpiece.normalizer.handle_chinese_chars;
}

std::vector<VocabularyFile> wordpiece_vocabulary_files(const TokenizerDefinition& definition) {
  std::string text;
  for (const std::string& token : definition.vocabulary) text += token + "\n";
  return {{std::string(kWordPieceType.vocabulary_file), std::move(text)}};
}

}  // namespace tandem::text
