#include "tandem/text/tokenizer_files.h"

#include <simdjson.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/text/json_text.h"
#include "tandem/text/tokenizer_json.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

namespace dom = simdjson::dom;
using Path = std::filesystem::path;

constexpr std::size_t kMostIds = std::size_t{1} << 24;

AddedToken parse_added_token(const Json& json, const Path& path, bool special) {
  AddedToken token;
  if (json.is_string()) {
    token.content = json.get<std::string>();
    token.special = special;
    token.normalized = !special;
    return token;
  }
  token.content = value_or<std::string>(json, "content", "", path);
  if (token.content.empty()) {
    raise<DataError>("'{}': an added token without \"content\": {}", path.string(), json.dump());
  }
  token.id = value_or<std::int32_t>(json, "id", 0, path);
  token.single_word = value_or(json, "single_word", false, path);
  token.lstrip = value_or(json, "lstrip", false, path);
  token.rstrip = value_or(json, "rstrip", false, path);
  token.special = value_or(json, "special", special, path);
  token.normalized = value_or(json, "normalized", !token.special, path);
  return token;
}

// Reads one directory into a TokenizerDefinition.
class DefinitionReader {
 public:
  explicit DefinitionReader(const Path& directory) : directory_(directory) {}

  TokenizerDefinition read() {
    d_.tokenizer_config = read_object_if_exists(config_path());
    d_.special_tokens_map = read_object_if_exists(directory_ / "special_tokens_map.json");
    check_padding_side();
    read_special_token_names();
    if (const auto text = read_file_if_exists(directory_ / "tokenizer.json")) {
      read_tokenizer_json(*text);
    } else if (const auto vocabulary = read_file_if_exists(directory_ / "vocab.txt")) {
      read_vocab_txt(*vocabulary);
    } else {
      raise<DataError>(
          "no tokenizer in '{}': expected tokenizer.json or vocab.txt; pass --tokenizer_name with "
          "a "
          "folder (or model name) that has one",
          directory_.string());
    }
    apply_config_settings();
    resolve_special_tokens();
    std::sort(d_.added_tokens.begin(), d_.added_tokens.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return std::move(d_);
  }

 private:
  Path config_path() const { return directory_ / "tokenizer_config.json"; }

  void check_padding_side() const {
    const auto side =
        value_or<std::string>(d_.tokenizer_config, "padding_side", "right", config_path());
    if (side != "right") {
      raise<DataError>("'{}': padding_side is \"{}\"; only \"right\" is supported",
                       config_path().string(), side);
    }
  }

  // As in Hugging Face, special_tokens_map.json counts only if tokenizer_config.json has no
  // added_tokens_decoder, and wins then.
  void read_special_token_names() {
    const bool map_counts = member(d_.tokenizer_config, "added_tokens_decoder").is_null();
    const std::pair<const char*, std::string*> names[] = {{"unk_token", &d_.unk_token},
                                                          {"sep_token", &d_.sep_token},
                                                          {"pad_token", &d_.pad_token},
                                                          {"cls_token", &d_.cls_token},
                                                          {"mask_token", &d_.mask_token}};
    for (const auto& [key, name] : names) {
      read_special_token(d_.tokenizer_config, key, config_path(), *name);
      if (map_counts) {
        read_special_token(d_.special_tokens_map, key, directory_ / "special_tokens_map.json",
                           *name);
      }
    }
  }

  void read_special_token(const Json& object, const char* key, const Path& path,
                          std::string& name) {
    const Json& value = member(object, key);
    if (value.is_null()) return;
    AddedToken token = parse_added_token(value, path, true);
    token.special = true;
    name = token.content;
    if (value.is_object()) token.normalized = value_or(value, "normalized", false, path);
    special_flags_[name] = token;
  }

  void read_tokenizer_json(const std::string& text) {
    path_ = directory_ / "tokenizer.json";
    dom::parser parser;
    dom::element document;
    if (const auto error = parser.parse(text).get(document)) {
      const std::string where = describe_json_error(text);
      raise<DataError>("'{}' is not JSON: {}", path_.string(),
                       where.empty() ? simdjson::error_message(error) : where);
    }
    dom::object root, model;
    if (document.get(root) || root["model"].get(model)) {
      raise<DataError>("'{}': expected an object with a member \"model\"", path_.string());
    }
    for (const auto& section : root) {
      append_json(section.key,
                  section.key == "model" ? convert_object(model, "vocab") : convert(section.value));
    }
    read_model(model);
    read_normalizer();
    check_pre_tokenizer();
    check_post_processor();
    for (const Json& token : member(d_.tokenizer_json, "added_tokens")) {
      d_.added_tokens.push_back(parse_added_token(token, path_, false));
    }
  }

  void append_json(std::string_view key, Json value) {
    if (d_.tokenizer_json.is_null()) d_.tokenizer_json = Json::object();
    append_member(d_.tokenizer_json, key, std::move(value));
  }

  void read_model(const dom::object& model) {
    const Json& settings = member(d_.tokenizer_json, "model");
    dom::object vocabulary;
    const bool has_object = !model["vocab"].get(vocabulary);
    // Files written before "type" existed are recognised by WordPiece's own settings.
    const std::string otherwise =
        has_object && settings.contains("max_input_chars_per_word") ? "WordPiece" : "none";
    const auto type = value_or<std::string>(settings, "type", otherwise, path_);
    if (type != "WordPiece" || !has_object) {
      raise<DataError>(
          "'{}': the model type is \"{}\", expected \"WordPiece\": only tokenizers of BERT and "
          "DistilBERT models are supported",
          path_.string(), type);
    }
    d_.unk_token = value_or(settings, "unk_token", d_.unk_token, path_);
    d_.continuing_subword_prefix =
        value_or(settings, "continuing_subword_prefix", d_.continuing_subword_prefix, path_);
    d_.max_input_chars_per_word =
        value_or(settings, "max_input_chars_per_word", d_.max_input_chars_per_word, path_);
    for (const auto& entry : vocabulary) {
      std::uint64_t id = 0;
      if (entry.value.get(id) || id >= kMostIds) {
        raise<DataError>("'{}': the id of token \"{}\" is not an integer from 0 to {}",
                         path_.string(), entry.key, kMostIds - 1);
      }
      if (id >= d_.vocabulary.size()) d_.vocabulary.resize(id + 1);
      d_.vocabulary[id] = entry.key;
    }
  }

  void read_normalizer() {
    const Json& normalizer = member(d_.tokenizer_json, "normalizer");
    if (normalizer.is_null()) {
      d_.normalizer = {false, false, false, false};
      return;
    }
    expect_type(normalizer, "normalizer", "BertNormalizer");
    d_.normalizer.clean_text = value_or(normalizer, "clean_text", true, path_);
    d_.normalizer.handle_chinese_chars = value_or(normalizer, "handle_chinese_chars", true, path_);
    d_.normalizer.strip_accents = optional_bool(normalizer, "strip_accents", path_);
    d_.normalizer.lowercase = value_or(normalizer, "lowercase", true, path_);
  }

  static std::optional<bool> optional_bool(const Json& object, const char* key, const Path& path) {
    if (member(object, key).is_null()) return std::nullopt;
    return value_or(object, key, false, path);
  }

  void expect_type(const Json& section, const char* name, std::string_view expected) const {
    const auto type = value_or<std::string>(section, "type", "none", path_);
    if (type != expected) {
      raise<DataError>("'{}': the {} is \"{}\", expected \"{}\"", path_.string(), name, type,
                       expected);
    }
  }

  void check_pre_tokenizer() const {
    const Json& section = member(d_.tokenizer_json, "pre_tokenizer");
    if (section.is_null()) {
      raise<DataError>("'{}': no pre_tokenizer, expected \"BertPreTokenizer\"", path_.string());
    }
    expect_type(section, "pre_tokenizer", "BertPreTokenizer");
  }

  // [CLS] A [SEP] B [SEP], as a template or as BertProcessing; its two tokens are the ones that
  // frame a sequence.
  void check_post_processor() {
    const Json& section = member(d_.tokenizer_json, "post_processor");
    const auto type = value_or<std::string>(section, "type", "none", path_);
    std::string cls, sep;
    try {
      if (type == "BertProcessing") {
        cls = section.at("cls").at(0).get<std::string>();
        sep = section.at("sep").at(0).get<std::string>();
      } else if (type == "TemplateProcessing" && section.at("pair").size() == 5) {
        const Json& pair = section.at("pair");
        cls = pair.at(0).at("SpecialToken").at("id").get<std::string>();
        sep = pair.at(2).at("SpecialToken").at("id").get<std::string>();
        if (pair.at(4).at("SpecialToken").at("id") != sep) sep.clear();
      }
    } catch (const Json::exception&) {
      cls.clear();
    }
    if (cls.empty() || sep.empty()) {
      raise<DataError>(
          "'{}': the post_processor (type \"{}\") does not make [CLS] A [SEP] B [SEP], which BERT "
          "models expect",
          path_.string(), type);
    }
    d_.cls_token = cls;
    d_.sep_token = sep;
  }

  void read_vocab_txt(std::string_view text) {
    path_ = directory_ / "vocab.txt";
    if (const auto invalid = find_invalid_utf8(text)) {
      raise<DataError>("'{}': {}: not UTF-8", path_.string(), describe_position(text, *invalid));
    }
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      d_.vocabulary.emplace_back(line);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
    read_added_tokens_json();
    read_added_tokens_decoder();
  }

  // {"token": id}: tokens that users added to an older tokenizer.
  void read_added_tokens_json() {
    const Path path = directory_ / "added_tokens.json";
    const Json tokens = read_object_if_exists(path);
    for (auto it = tokens.begin(); it != tokens.end(); ++it) {
      AddedToken token;
      token.content = it.key();
      token.id = value_or<std::int32_t>(tokens, it.key(), 0, path);
      token.special = special_flags_.contains(token.content);
      token.normalized = !token.special;
      d_.added_tokens.push_back(std::move(token));
    }
  }

  // {"103": {"content": "[MASK]", …}} in tokenizer_config.json; wins over added_tokens.json.
  void read_added_tokens_decoder() {
    const Json& decoder = member(d_.tokenizer_config, "added_tokens_decoder");
    for (auto it = decoder.begin(); it != decoder.end(); ++it) {
      AddedToken token = parse_added_token(*it, config_path(), false);
      token.id = std::atoi(it.key().c_str());
      std::erase_if(d_.added_tokens,
                    [&](const AddedToken& other) { return other.content == token.content; });
      d_.added_tokens.push_back(std::move(token));
    }
  }

  // BertTokenizerFast sets its own three settings (with defaults for those that
  // tokenizer_config.json lacks) over the normalizer it has read. A tokenizer whose class is the
  // general PreTrainedTokenizerFast keeps tokenizer.json's.
  void apply_config_settings() {
    const Json& config = d_.tokenizer_config;
    d_.model_max_length = read_model_max_length();
    d_.tokenizer_class = read_tokenizer_class();
    if (d_.tokenizer_class == "PreTrainedTokenizerFast") return;
    if (!d_.tokenizer_json.is_null() && member(d_.tokenizer_json, "normalizer").is_null()) return;
    d_.normalizer.lowercase = value_or(config, "do_lower_case", true, config_path());
    d_.normalizer.handle_chinese_chars =
        value_or(config, "tokenize_chinese_chars", true, config_path());
    d_.normalizer.strip_accents = optional_bool(config, "strip_accents", config_path());
  }

  std::size_t read_model_max_length() const {
    const double length = value_or(d_.tokenizer_config, "model_max_length", 1e30, config_path());
    if (!(length >= 1)) {
      raise<DataError>("'{}': model_max_length is {}, expected at least 1", config_path().string(),
                       length);
    }
    return length < 1e15 ? static_cast<std::size_t>(length) : Tokenizer::kUnlimited;
  }

  // Named by tokenizer_config.json, else by the kind of model beside it.
  std::string read_tokenizer_class() const {
    const auto named =
        value_or<std::string>(d_.tokenizer_config, "tokenizer_class", "", config_path());
    if (named == "PreTrainedTokenizerFast") return named;
    if (!named.empty()) return named.ends_with("Fast") ? named.substr(0, named.size() - 4) : named;
    const Json model = read_object_if_exists(directory_ / "config.json");
    const auto type =
        value_or<std::string>(model, "model_type", "bert", directory_ / "config.json");
    return type == "distilbert" ? "DistilBertTokenizer" : "BertTokenizer";
  }

  // The special tokens are added tokens even where no file lists them as such.
  void resolve_special_tokens() {
    std::unordered_map<std::string_view, std::int32_t> ids;
    for (std::size_t id = 0; id < d_.vocabulary.size(); ++id) {
      if (!d_.vocabulary[id].empty()) ids[d_.vocabulary[id]] = static_cast<std::int32_t>(id);
    }
    check_added_tokens(ids);
    for (const AddedToken& token : d_.added_tokens) ids[token.content] = token.id;
    d_.unk_id = require("unk_token", d_.unk_token, ids);
    d_.sep_id = require("sep_token", d_.sep_token, ids);
    d_.pad_id = require("pad_token", d_.pad_token, ids);
    d_.cls_id = require("cls_token", d_.cls_token, ids);
    for (const std::string* name :
         {&d_.unk_token, &d_.sep_token, &d_.pad_token, &d_.cls_token, &d_.mask_token}) {
      add_special_token(*name, ids);
    }
  }

  void check_added_tokens(const std::unordered_map<std::string_view, std::int32_t>& ids) const {
    for (const AddedToken& token : d_.added_tokens) {
      const auto found = ids.find(token.content);
      if (token.id < 0 || static_cast<std::size_t>(token.id) >= kMostIds) {
        raise<DataError>("'{}': added token \"{}\" has the id {}, expected 0 to {}", path_.string(),
                         token.content, token.id, kMostIds - 1);
      }
      if (found != ids.end() && found->second != token.id) {
        raise<DataError>("'{}': added token \"{}\" has the id {}, but the vocabulary gives it {}",
                         path_.string(), token.content, token.id, found->second);
      }
    }
  }

  std::int32_t require(const char* role, const std::string& name,
                       const std::unordered_map<std::string_view, std::int32_t>& ids) const {
    const auto found = ids.find(name);
    if (found == ids.end()) {
      raise<DataError>(
          "'{}': the vocabulary of {} entries has no {} \"{}\"; a BERT vocabulary needs [UNK], "
          "[CLS], "
          "[SEP] and [PAD] (tokenizer_config.json can give them other names)",
          path_.string(), d_.vocabulary.size(), role, name);
    }
    return found->second;
  }

  void add_special_token(const std::string& name,
                         const std::unordered_map<std::string_view, std::int32_t>& ids) {
    const auto id = ids.find(name);
    const bool known = std::any_of(d_.added_tokens.begin(), d_.added_tokens.end(),
                                   [&](const AddedToken& token) { return token.content == name; });
    if (known || id == ids.end()) return;
    AddedToken token;
    token.content = name;
    token.normalized = false;
    if (const auto flags = special_flags_.find(name); flags != special_flags_.end()) {
      token = flags->second;
    }
    token.id = id->second;
    token.special = true;
    d_.added_tokens.push_back(std::move(token));
  }

  const Path directory_;
  Path path_;  // of the file with the vocabulary
  TokenizerDefinition d_;
  std::map<std::string, AddedToken> special_flags_;  // by name, from the two settings files
};

}  // namespace

TokenizerDefinition read_tokenizer_definition(const Path& directory) {
  return DefinitionReader(directory).read();
}

}  // namespace tandem::text
