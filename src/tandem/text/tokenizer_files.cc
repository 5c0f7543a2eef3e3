#include "tandem/text/tokenizer_files.h"

#include <simdjson.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/python_json.h"
#include "tandem/text/json_text.h"
#include "tandem/text/tokenizer_json.h"
#include "tandem/text/tokenizer_model.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

namespace dom = simdjson::dom;
using Path = std::filesystem::path;

// Members of tokenizer.json's model that its type reads itself.
constexpr std::string_view kLargeMembers[] = {"vocab", "merges"};

// The class that transformers takes for a model, when tokenizer_config.json names none.
constexpr std::pair<std::string_view, std::string_view> kTokenizerClasses[] = {
    {"bert", "BertTokenizer"},
    {"distilbert", "DistilBertTokenizer"},
    {"electra", "ElectraTokenizer"},
    {"roberta", "RobertaTokenizer"},
    {"xlm-roberta", "XLMRobertaTokenizer"}};

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
  DefinitionReader(const Path& directory, const TokenizerOptions& options) : directory_(directory) {
    d_.options = options;
  }

  TokenizerDefinition read() {
    d_.tokenizer_config = read_object_if_exists(config_path());
    d_.special_tokens_map = read_object_if_exists(directory_ / "special_tokens_map.json");
    check_padding_side();
    read_special_token_names();
    if (const auto text = read_file_if_exists(directory_ / "tokenizer.json")) {
      read_tokenizer_json(*text);
    } else if (!read_vocabulary()) {
      std::string expected = "tokenizer.json";
      for (const TokenizerModelType& type : tokenizer_model_types())
        expected += fmt::format(" or {}", type.vocabulary_file);
      raise<DataError>(
          "no tokenizer in '{}': expected {}; pass --tokenizer_name with a folder (or model name) "
          "that has one",
          directory_.string(), expected);
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
    for (const auto& [key, name] : kSpecialTokens) {
      read_special_token(d_.tokenizer_config, key, config_path(), d_.*name);
      if (map_counts) {
        read_special_token(d_.special_tokens_map, key, directory_ / "special_tokens_map.json",
                           d_.*name);
      }
    }
  }

  // The type is known: what the files do not name has its family's name, and names that the family
  // does not have are unknown keys like others.
  void choose_model_type(const TokenizerModelType& type) {
    d_.model_type = &type;
    const SpecialTokenDefaults& defaults = type.special_tokens;
    const std::string_view names[] = {defaults.unk,  defaults.sep, defaults.pad, defaults.cls,
                                      defaults.mask, defaults.bos, defaults.eos};
    static_assert(std::size(names) == std::size(kSpecialTokens));
    for (std::size_t i = 0; i < std::size(names); ++i) {
      std::string& name = d_.*kSpecialTokens[i].second;
      if (name.empty() || names[i].empty()) name = names[i];
    }
  }

  void read_special_token(const Json& object, const char* key, const Path& path,
                          std::string& name) {
    const Json& value = member(object, key);
    if (value.is_null()) return;
    AddedToken token = parse_added_token(value, path, true);
    token.special = true;
    name = token.content;
    if (!value.is_object()) {  // its flags are the family's
      special_flags_.emplace(name, std::nullopt);
      return;
    }
    token.normalized = value_or(value, "normalized", false, path);
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
    try {
      require_shallow_json(text);
    } catch (const Json::exception& problem) {
      raise<DataError>("'{}' is not read: {}", path_.string(), json_reason(problem.what()));
    }
    dom::object root, model;
    if (document.get(root) || root["model"].get(model)) {
      raise<DataError>("'{}': expected an object with a member \"model\"", path_.string());
    }
    for (const auto& section : root) {
      append_json(section.key, section.key == "model" ? convert_object(model, kLargeMembers)
                                                      : convert(section.value));
    }
    choose_model_type(*model_type_of(model));
    d_.model_type->read_json({path_, model}, d_);
    for (const Json& token : member(d_.tokenizer_json, "added_tokens")) {
      d_.added_tokens.push_back(parse_added_token(token, path_, false));
    }
  }

  void append_json(std::string_view key, Json value) {
    if (d_.tokenizer_json.is_null()) d_.tokenizer_json = Json::object();
    append_member(d_.tokenizer_json, key, std::move(value));
  }

  const TokenizerModelType* model_type_of(const dom::object& model) const {
    const Json& settings = member(d_.tokenizer_json, "model");
    const auto named = value_or<std::string>(settings, "type", "none", path_);
    std::string expected;
    for (const TokenizerModelType& type : tokenizer_model_types()) {
      if (type.is_type_of(named, settings, model)) return &type;
      expected += fmt::format("{}\"{}\"", expected.empty() ? "" : " or ", type.name);
    }
    raise<DataError>(
        "'{}': the model type is \"{}\", expected {}: only tokenizers of the BERT, RoBERTa and "
        "XLM-R families are supported",
        path_.string(), named, expected);
  }

  // A directory without tokenizer.json: the vocabulary in a file of its own.
  bool read_vocabulary() {
    for (const TokenizerModelType& type : tokenizer_model_types()) {
      path_ = directory_ / type.vocabulary_file;
      const auto vocabulary = read_file_if_exists(path_);
      if (!vocabulary) continue;
      choose_model_type(type);
      type.read_vocabulary(*vocabulary, path_, d_);
      read_added_tokens_json();
      read_added_tokens_decoder();
      return true;
    }
    return false;
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
      d_.added_tokens.push_back(std::move(token));
    }
    keep_last_of_each();
  }

  // Of several added tokens with one text.
  void keep_last_of_each() {
    std::unordered_map<std::string_view, std::size_t> last;
    for (std::size_t i = 0; i < d_.added_tokens.size(); ++i) last[d_.added_tokens[i].content] = i;
    std::vector<AddedToken> kept;
    for (std::size_t i = 0; i < d_.added_tokens.size(); ++i) {
      if (last.at(d_.added_tokens[i].content) == i) kept.push_back(d_.added_tokens[i]);
    }
    d_.added_tokens = std::move(kept);
  }

  void apply_config_settings() {
    d_.model_max_length = read_model_max_length();
    d_.tokenizer_class = read_tokenizer_class();
    d_.model_type->apply_config(d_.tokenizer_config, config_path(), d_);
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
    // transformers writes the name without "Fast" where it has the files of the class without it.
    const bool shortened = named.ends_with("Fast") && d_.model_type->name != "Unigram";
    if (!named.empty()) return shortened ? named.substr(0, named.size() - 4) : named;
    const Json model = read_object_if_exists(directory_ / "config.json");
    const auto type = value_or<std::string>(model, "model_type", "", directory_ / "config.json");
    for (const auto& [model_type, tokenizer_class] : kTokenizerClasses) {
      if (model_type == type) return std::string(tokenizer_class);
    }
    return std::string(d_.model_type->tokenizer_class);
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
    d_.frame.sep_id = require("sep_token", d_.sep_token, ids);
    d_.frame.pad_id = require("pad_token", d_.pad_token, ids);
    d_.frame.cls_id = require("cls_token", d_.cls_token, ids);
    for (const auto& [key, name] : kSpecialTokens) add_special_token(d_.*name, ids);
  }

  void check_added_tokens(const std::unordered_map<std::string_view, std::int32_t>& ids) const {
    const std::size_t most = most_ids(d_.vocabulary.size() + d_.added_tokens.size());
    for (const AddedToken& token : d_.added_tokens) {
      const auto found = ids.find(token.content);
      if (token.id < 0 || static_cast<std::size_t>(token.id) >= most) {
        raise<DataError>("'{}': added token \"{}\" has the id {}, expected 0 to {}", path_.string(),
                         token.content, token.id, most - 1);
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
      const SpecialTokenDefaults& names = d_.model_type->special_tokens;
      raise<DataError>(
          "'{}': the vocabulary of {} entries has no {} \"{}\"; a vocabulary of this type needs "
          "{}, "
          "{}, {} and {} (tokenizer_config.json can give them other names)",
          path_.string(), d_.vocabulary.size(), role, name, names.unk, names.cls, names.sep,
          names.pad);
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
    const bool is_mask = name == d_.mask_token;
    token.normalized = !is_mask && d_.model_type->special_tokens.normalized;
    token.lstrip = is_mask && d_.model_type->special_tokens.mask_takes_blanks;
    if (const auto flags = special_flags_.find(name);
        flags != special_flags_.end() && flags->second) {
      token = *flags->second;
    }
    token.id = id->second;
    token.special = true;
    d_.added_tokens.push_back(std::move(token));
  }

  const Path directory_;
  Path path_;  // of the file with the vocabulary
  TokenizerDefinition d_;
  // By name, from the two settings files; nothing where they tell the name alone.
  std::map<std::string, std::optional<AddedToken>> special_flags_;
};

}  // namespace

void read_vocabulary_object(dom::object vocabulary, const Path& path,
                            TokenizerDefinition& definition) {
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : vocabulary) ++entries;
  for (const auto& entry : vocabulary) {
    std::uint64_t id = 0;
    if (entry.value.get(id) || id >= most_ids(entries)) {
      raise<DataError>(
          "'{}': the id of token \"{}\" is not an integer from 0 to {}, as in a vocabulary of {}",
          path.string(), entry.key, most_ids(entries) - 1, entries);
    }
    if (id >= definition.vocabulary.size()) definition.vocabulary.resize(id + 1);
    definition.vocabulary[id] = entry.key;
  }
}

TokenizerDefinition read_tokenizer_definition(const Path& directory,
                                              const TokenizerOptions& options) {
  return DefinitionReader(directory, options).read();
}

}  // namespace tandem::text
