// Reads and writes SentencePiece's unigram in the files of a tokenizer.
#include <cmath>
#include <string>
#include <utility>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/text/added_token_files.h"
#include "tandem/text/base64.h"
#include "tandem/text/charsmap.h"
#include "tandem/text/json_text.h"
#include "tandem/text/post_processor.h"
#include "tandem/text/sentencepiece_file.h"
#include "tandem/text/tokenizer_json.h"
#include "tandem/text/unigram.h"
#include "tandem/text/unigram_model.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

namespace dom = simdjson::dom;
using Path = std::filesystem::path;

constexpr std::string_view kMetaspace = "\u2581";

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  for (std::size_t at = 0; at < text.size();) characters += next_code_point(text, at);
  return characters;
}

void add_token(std::string_view token, double score, const Path& path, TokenizerDefinition& d) {
  const std::size_t id = d.vocabulary.size();
  if (token.size() > Unigram::kMostTokenBytes || id >= kMostTokenIds || !std::isfinite(score)) {
    raise<DataError>(
        "'{}': token {} has {} bytes and the score {}, expected at most {} bytes, a finite score "
        "and fewer than {} tokens",
        path.string(), id, token.size(), score, Unigram::kMostTokenBytes, kMostTokenIds);
  }
  d.vocabulary.emplace_back(token);
  d.unigram.scores.push_back(score);
}

void read_model(const TokenizerJsonSource& source, TokenizerDefinition& d) {
  const Path& path = source.path;
  const Json& settings = member(d.tokenizer_json, "model");
  for (const dom::element entry : dom::array(source.model["vocab"])) {
    dom::array pair;
    std::string_view token;
    double score = 0;
    if (entry.get(pair) || pair.size() != 2 || pair.at(0).get(token) || pair.at(1).get(score)) {
      raise<DataError>("'{}': entry {} of the vocabulary is not [\"token\", score]", path.string(),
                       d.vocabulary.size());
    }
    add_token(token, score, path, d);
  }
  if (value_or(settings, "byte_fallback", false, path))
    raise<DataError>("'{}': byte_fallback of the Unigram model is not supported", path.string());
  const auto unk_id = value_or<std::int64_t>(settings, "unk_id", -1, path);
  if (unk_id < 0 || static_cast<std::size_t>(unk_id) >= d.vocabulary.size()) {
    raise<DataError>("'{}': unk_id of the Unigram model is {}, expected 0 to {}", path.string(),
                     unk_id, d.vocabulary.size());
  }
  d.unk_token = d.vocabulary[static_cast<std::size_t>(unk_id)];
}

void add_charsmap(std::string_view bytes, const Path& path, TokenizerDefinition& d) {
  d.unigram.normalizer.push_back(std::make_shared<const Charsmap>(bytes, path.string()));
}

// The regular expressions that transformers 4 and 5 write.
constexpr std::pair<std::string_view, ReplaceStep::Pattern> kRegularExpressions[] = {
    {" {2,}", ReplaceStep::Pattern::kBlanks},
    {R"(\s{2,}|[\n\r\t])", ReplaceStep::Pattern::kWhiteSpace}};

ReplaceStep read_replace(const Json& step, const Path& path) {
  const Json& pattern = member(step, "pattern");
  ReplaceStep replace;
  replace.content = characters_of(value_or<std::string>(step, "content", "", path));
  const auto regex = value_or<std::string>(pattern, "Regex", "", path);
  for (const auto& [expression, meaning] : kRegularExpressions) {
    replace.pattern = meaning;
    if (regex == expression) return replace;
  }
  replace.pattern = ReplaceStep::Pattern::kText;
  replace.text = characters_of(value_or<std::string>(pattern, "String", "", path));
  if (replace.text.empty()) {
    raise<DataError>(
        "'{}': the normalizer replaces the pattern {}, expected the regular expression \"{}\" or "
        "\"{}\", or a text",
        path.string(), pattern.dump(), kRegularExpressions[0].first, kRegularExpressions[1].first);
  }
  return replace;
}

void read_normalizer(const Json& step, const Path& path, TokenizerDefinition& d) {
  if (step.is_null()) return;
  const auto type = value_or<std::string>(step, "type", "none", path);
  if (type == "Precompiled") {
    const auto bytes = from_base64(value_or<std::string>(step, "precompiled_charsmap", "", path));
    if (!bytes) raise<DataError>("'{}': precompiled_charsmap is not base64", path.string());
    add_charsmap(*bytes, path, d);
  } else if (type == "Strip") {
    d.unigram.normalizer.push_back(StripStep{value_or(step, "strip_left", true, path),
                                             value_or(step, "strip_right", true, path)});
  } else if (type == "Replace") {
    d.unigram.normalizer.push_back(read_replace(step, path));
  } else if (type == "NFC") {
    d.unigram.normalizer.push_back(NfcStep{std::make_shared<const CharacterTable>()});
  } else if (type == "Sequence") {
    for (const Json& part : member(step, "normalizers")) {
      if (value_or<std::string>(part, "type", "none", path) == "Sequence")
        raise<DataError>("'{}': a normalizer of type \"Sequence\" in another", path.string());
      read_normalizer(part, path, d);
    }
  } else {
    raise<DataError>(
        "'{}': the normalizer is \"{}\", expected \"Precompiled\", \"Strip\", \"Replace\", "
        "\"NFC\" or a \"Sequence\" of them with Unigram",
        path.string(), type);
  }
}

// "prepend_scheme", or the "add_prefix_space" of older files.
PrependScheme read_prepend_scheme(const Json& section, const Path& path) {
  const bool add = value_or(section, "add_prefix_space", true, path);
  const auto scheme =
      value_or<std::string>(section, "prepend_scheme", add ? "always" : "never", path);
  if (scheme == "always") return PrependScheme::kAlways;
  if (scheme == "first") return PrependScheme::kFirst;
  if (scheme == "never") return PrependScheme::kNever;
  raise<DataError>("'{}': prepend_scheme is \"{}\", expected \"always\", \"first\" or \"never\"",
                   path.string(), scheme);
}

void read_metaspace(const Json& section, const Path& path, TokenizerDefinition& d) {
  const std::u32string replacement =
      characters_of(value_or(section, "replacement", std::string(kMetaspace), path));
  const auto type = value_or<std::string>(section, "type", "none", path);
  if (type != "Metaspace" || replacement.size() != 1) {
    raise<DataError>(
        "'{}': the pre_tokenizer is {}, expected \"Metaspace\" with one character as replacement, "
        "or \"WhitespaceSplit\" and \"Metaspace\", with Unigram",
        path.string(), section.dump());
  }
  d.unigram.replacement = replacement[0];
  d.unigram.prepend = read_prepend_scheme(section, path);
  d.unigram.split = value_or(section, "split", true, path);
}

void read_pre_tokenizer(const Json& section, const Path& path, TokenizerDefinition& d) {
  const Json& parts = member(section, "pretokenizers");
  if (value_or<std::string>(section, "type", "none", path) == "Sequence" && parts.is_array() &&
      parts.size() == 1) {
    read_metaspace(parts[0], path, d);
    return;
  }
  if (value_or<std::string>(section, "type", "none", path) == "Sequence" && parts.is_array() &&
      parts.size() == 2 && member(parts[0], "type") == "WhitespaceSplit") {
    d.unigram.splits_white_space = true;
    read_metaspace(parts[1], path, d);
    return;
  }
  read_metaspace(section, path, d);
}

void add_charsmap_step(std::string_view charsmap, Json& steps) {
  if (!charsmap.empty())
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(charsmap)}});
}

Json strip_step(bool left) {
  return {{"type", "Strip"}, {"strip_left", left}, {"strip_right", true}};
}

Json blanks_step(std::string_view content) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", content}};
}

// The sections that transformers makes of a SentencePiece model for XLM-R and for DeBERTa-v3.
enum class Form { kXlmRoberta, kDeberta };

Json sentencepiece_sections(std::string_view charsmap, Form form) {
  const bool deberta = form == Form::kDeberta;
  Json steps = Json::array();
  if (deberta) steps.push_back(strip_step(/*left=*/true));
  add_charsmap_step(charsmap, steps);
  if (!deberta) steps.push_back(strip_step(/*left=*/false));
  steps.push_back(blanks_step(deberta ? " " : kMetaspace));
  const Json metaspace = {{"type", "Metaspace"},
                          {"replacement", kMetaspace},
                          {"prepend_scheme", "always"},
                          {"split", true}};
  Json parts = Json::array();
  parts.push_back(metaspace);
  const Json sequence = {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}};
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(steps)}}},
          {"pre_tokenizer", deberta ? sequence : metaspace},
          {"decoder", metaspace}};
}

// Reads the file and makes the sections of it, which apply.
SentencePieceFile take_sentencepiece_file(std::string_view bytes, const Path& path, Form form,
                                          TokenizerDefinition& d) {
  SentencePieceFile file = read_sentencepiece_file(bytes, path.string());
  if (file.model_type != 1 || file.pieces.size() < 3) {
    raise<DataError>(
        "'{}': a SentencePiece model of type {} with {} pieces, expected type 1 (unigram) with at "
        "least 3",
        path.string(), file.model_type, file.pieces.size());
  }
  d.unigram.sentencepiece_file = path.filename().string();
  d.unigram.sentencepiece_model = bytes;
  d.unigram.made_sections = sentencepiece_sections(file.precompiled_charsmap, form);
  read_normalizer(d.unigram.made_sections["normalizer"], path, d);
  read_pre_tokenizer(d.unigram.made_sections["pre_tokenizer"], path, d);
  return file;
}

void add_piece(const SentencePieceFile::Piece& piece, const Path& path, TokenizerDefinition& d) {
  add_token(piece.text, piece.score, path, d);
  if (piece.type != SentencePieceFile::kControl && piece.type != SentencePieceFile::kUserDefined)
    return;
  AddedToken token;
  token.content = piece.text;
  token.id = static_cast<std::int32_t>(d.vocabulary.size()) - 1;
  token.special = piece.type == SentencePieceFile::kControl;
  token.normalized = false;
  d.added_tokens.push_back(std::move(token));
}

}  // namespace

// Files written before "type" existed are recognised by their list of tokens and scores.
bool is_unigram(std::string_view named, const Json& settings, const dom::object& model) {
  dom::array vocabulary;
  if (model["vocab"].get(vocabulary)) return false;
  return named == "Unigram" || (named == "none" && settings.contains("unk_id"));
}

void read_unigram_json(const TokenizerJsonSource& source, TokenizerDefinition& d) {
  for (const std::string_view name : {kUnigramType.vocabulary_file, kDebertaVocabulary}) {
    auto bytes = read_file_if_exists(source.path.parent_path() / name);
    if (!bytes) continue;
    d.unigram.sentencepiece_file = name;
    d.unigram.sentencepiece_model = std::move(*bytes);
    break;
  }
  read_model(source, d);
  read_normalizer(member(d.tokenizer_json, "normalizer"), source.path, d);
  read_pre_tokenizer(member(d.tokenizer_json, "pre_tokenizer"), source.path, d);
  apply_post_processor(source.path, d);
}

namespace {

// The ids of the pieces; the mask is added behind them.
void read_deberta_model(std::string_view bytes, const Path& path, TokenizerDefinition& d) {
  const SentencePieceFile file = take_sentencepiece_file(bytes, path, Form::kDeberta, d);
  for (const SentencePieceFile::Piece& piece : file.pieces) add_piece(piece, path, d);
  AddedToken unknown{.content = d.unk_token, .id = kNoTokenId, .special = true};
  AddedToken mask{.content = d.mask_token, .id = kNoTokenId, .normalized = false, .special = true};
  d.added_tokens.push_back(std::move(unknown));
  d.added_tokens.push_back(std::move(mask));
}

}  // namespace

// XLM-R's ids: four special tokens, SentencePiece's pieces from the third on, "<mask>".
void read_sentencepiece_model(std::string_view bytes, const Path& path, TokenizerDefinition& d) {
  if (path.filename() == kDebertaVocabulary) {
    read_deberta_model(bytes, path, d);
    return;
  }
  const SentencePieceFile file = take_sentencepiece_file(bytes, path, Form::kXlmRoberta, d);
  for (const char* token : {"<s>", "<pad>", "</s>", "<unk>"}) add_token(token, 0, path, d);
  for (std::size_t i = 3; i < file.pieces.size(); ++i) add_piece(file.pieces[i], path, d);
  add_token("<mask>", 0, path, d);
  d.frame.num_separators = 2;
  d.frame.second_type_id = 0;
}

// With a tokenizer.json, its normalizer alone counts, as in transformers 4.
void apply_unigram_config(const Json& config, const Path& path, TokenizerDefinition& d) {
  const bool deberta = d.unigram.sentencepiece_file == kDebertaVocabulary;
  if (deberta && d.tokenizer_json.is_null() && value_or(config, "do_lower_case", false, path)) {
    raise<DataError>(
        "'{}': do_lower_case is true; tandem has DeBERTa-v3's tokenizer, which keeps the case. "
        "Save a tokenizer.json with transformers, or set it to false",
        path.string());
  }
}

Json unigram_sections(const TokenizerDefinition& d) {
  Json sections = Json::object();
  const bool read = !d.tokenizer_json.is_null();
  const Json& source = read ? d.tokenizer_json : d.unigram.made_sections;
  for (const char* key : {"normalizer", "pre_tokenizer"})
    append_entry(sections, key, member(source, key));
  append_entry(sections, "post_processor",
               read ? member(source, "post_processor")
                    : template_processing(d.cls_token, d.frame.cls_id, d.sep_token, d.frame.sep_id,
                                          d.frame.num_separators, d.frame.second_type_id));
  append_entry(sections, "decoder", member(source, "decoder"));
  Json vocabulary = Json::array();
  for (std::size_t id = 0; id < d.vocabulary.size(); ++id) {
    Json entry = Json::array();
    entry.push_back(d.vocabulary[id]);
    entry.push_back(d.unigram.scores[id]);
    vocabulary.push_back(std::move(entry));
  }
  Json model = {{"type", "Unigram"}, {"unk_id", d.unk_id}};
  append_entry(model, "vocab", std::move(vocabulary));
  append_entry(model, "byte_fallback", false);
  append_entry(sections, "model", std::move(model));
  return sections;
}

void write_unigram_config(const TokenizerDefinition&, Json&) {}

// As transformers does, only where the directory had one.
std::vector<VocabularyFile> unigram_vocabulary_files(const TokenizerDefinition& d) {
  if (d.unigram.sentencepiece_model.empty()) return {};
  return {{d.unigram.sentencepiece_file, d.unigram.sentencepiece_model}};
}

}  // namespace tandem::text
