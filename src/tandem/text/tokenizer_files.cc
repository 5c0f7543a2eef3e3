#include "tandem/text/tokenizer_files.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/text/added_token_files.h"
#include "tandem/text/json_text.h"
#include "tandem/text/post_processor.h"
#include "tandem/text/tokenizer_class.h"
#include "tandem/text/tokenizer_json.h"
#include "tandem/text/tokenizer_keys.h"
#include "tandem/text/tokenizer_model.h"
#include "tandem/text/utf8.h"
#include "tandem/text/wordpiece_model.h"

namespace tandem::text {
namespace {

namespace dom = simdjson::dom;
using Path = std::filesystem::path;

// Members of tokenizer.json's model that its type reads itself.
constexpr std::string_view kLargeMembers[] = {"vocab", "merges"};

// Reads one directory into a TokenizerDefinition.
class DefinitionReader {
 public:
  DefinitionReader(const Path& directory, const TokenizerOptions& options) : directory_(directory) {
    d_.options = options;
  }

  TokenizerDefinition read() {
    d_.tokenizer_config = read_object_if_exists(config_path());
    d_.special_tokens_map = read_object_if_exists(map_path());
    check_tokenizer_config(d_.tokenizer_config, config_path(), d_.notes);
    check_special_tokens_map(d_.special_tokens_map, map_path(), d_.notes);
    choose_class();
    read_special_token_names();
    read_chat_template();
    if (const auto text = read_text_if_exists(directory_ / "tokenizer.json")) {
      read_tokenizer_json(*text);
    } else if (!read_vocabulary()) {
      no_vocabulary();
    }
    read_added_tokens_decoder();
    check_padding_side(d_, directory_);
    apply_config_settings();
    resolve_special_tokens();
    std::ranges::sort(d_.added_tokens, {}, &AddedToken::id);
    return std::move(d_);
  }

 private:
  Path config_path() const { return directory_ / "tokenizer_config.json"; }
  Path map_path() const { return directory_ / "special_tokens_map.json"; }

  // The class that tokenizer_config.json names, else config.json, else that of the kind of model.
  // None where the files name neither: then tokenizer.json decides, or the kind of vocabulary.
  void choose_class() {
    const Path model_path = directory_ / "config.json";
    Path source = config_path();
    named_class_ = value_or<std::string>(d_.tokenizer_config, "tokenizer_class", "", source);
    Json model;
    if (named_class_.empty()) {
      source = model_path;
      model = read_object_if_exists(source);
      named_class_ = value_or<std::string>(model, "tokenizer_class", "", source);
    }
    if (!named_class_.empty()) {
      class_ = find_tokenizer_class(named_class_);
      if (class_ == nullptr)
        unknown_class(source, fmt::format("tokenizer_class is {}", named_class_));
      return;
    }
    const auto type = value_or<std::string>(model, "model_type", "", model_path);
    if (type.empty()) return;
    class_ = tokenizer_class_of_model(type);
    if (class_ == nullptr) unknown_class(model_path, fmt::format("model_type is {}", type));
    named_class_ = class_->name;
  }

  [[noreturn]] void unknown_class(const Path& source, const std::string& found) const {
    raise<DataError>(
        "'{}': {}, a tokenizer whose rules tandem does not have; expected one of {}. If "
        "tokenizer.json alone defines how texts become tokens, set \"tokenizer_class\" in "
        "tokenizer_config.json to PreTrainedTokenizerFast",
        source.string(), found, fmt::join(tokenizer_class_names(), ", "));
  }

  [[noreturn]] void no_vocabulary() const {
    std::string expected = "tokenizer.json";
    for (const TokenizerModelType& type : tokenizer_model_types()) {
      if (reads_vocabulary_of(type)) expected += fmt::format(" or {}", vocabulary_file_of(type));
    }
    raise<DataError>(
        "no tokenizer in '{}': expected {}{}; pass --tokenizer_name with a folder (or model name) "
        "that has one",
        directory_.string(), expected,
        class_ == nullptr ? "" : fmt::format(", for the class is {}", named_class_));
  }

  std::string_view vocabulary_file_of(const TokenizerModelType& type) const {
    const bool of_class = class_ != nullptr && !class_->vocabulary_file.empty();
    return of_class ? class_->vocabulary_file : type.vocabulary_file;
  }

  // Whether the class may take its vocabulary from the file of this type.
  bool reads_vocabulary_of(const TokenizerModelType& type) const {
    return class_ == nullptr || (class_->model == type.name && !class_->follows_json);
  }

  // As in Hugging Face, special_tokens_map.json counts only if tokenizer_config.json has no
  // added_tokens_decoder, and wins then.
  void read_special_token_names() {
    const bool map_counts = member(d_.tokenizer_config, "added_tokens_decoder").is_null();
    for (const auto& [key, name] : kSpecialTokens) {
      read_special_token(d_.tokenizer_config, key, config_path(), d_.*name);
      if (map_counts) {
        read_special_token(d_.special_tokens_map, key, map_path(), d_.*name);
      }
    }
  }

  // Its own file wins. A list of templates has names.
  void read_chat_template() {
    if (auto text = read_text_if_exists(directory_ / "chat_template.jinja")) {
      d_.chat_template = std::move(*text);
      d_.chat_template_file = true;
      return;
    }
    const Json& found = member(d_.tokenizer_config, "chat_template");
    if (found.is_string()) d_.chat_template = found.get<std::string>();
    if (!found.is_array()) return;
    for (const Json& entry : found) {
      if (member(entry, "name") == "default")
        d_.chat_template = value_or<std::string>(entry, "template", "", config_path());
    }
  }

  // The special tokens of the class, or else of the type of model.
  const SpecialTokenDefaults& special_tokens() const {
    const bool of_class = class_ != nullptr && class_->special_tokens != nullptr;
    return of_class ? *class_->special_tokens : d_.model_type->special_tokens;
  }

  // The type is known: what the files do not name has its family's name, and names that the family
  // does not have are unknown keys like others. The general class has no mask of its own.
  void choose_model_type(const TokenizerModelType& type) {
    d_.model_type = &type;
    const SpecialTokenDefaults& defaults = special_tokens();
    const std::string_view names[] = {defaults.unk,  defaults.sep, defaults.pad, defaults.cls,
                                      defaults.mask, defaults.bos, defaults.eos};
    static_assert(std::size(names) == std::size(kSpecialTokens));
    const bool general = class_ != nullptr && class_->model.empty();
    for (std::size_t i = 0; i < std::size(names); ++i) {
      std::string& name = d_.*kSpecialTokens[i].second;
      if (general && &name == &d_.mask_token) continue;
      if (name.empty() || names[i].empty()) name = names[i];
    }
  }

  // The names of kSpecialTokens.
  using SpecialTokenNames = std::array<std::string, std::size(kSpecialTokens)>;

  SpecialTokenNames special_token_names() const {
    SpecialTokenNames names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = d_.*kSpecialTokens[i].second;
    return names;
  }

  // The tokenizer of a decoder has the special tokens that its files name, and those of its class.
  void choose_open_special_tokens(const SpecialTokenNames& named) {
    const bool of_class = class_ != nullptr && class_->special_tokens != nullptr;
    for (std::size_t i = 0; i < named.size(); ++i) {
      std::string& name = d_.*kSpecialTokens[i].second;
      if (!named[i].empty() || !of_class) name = named[i];
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
    const SpecialTokenNames named = special_token_names();
    choose_model_type(*model_type_of(model));
    d_.model_type->read_json({path_, model}, d_);
    if (d_.open_frame) choose_open_special_tokens(named);
    check_tokenizer_json(d_.tokenizer_json, d_.model_type->name, d_.tokenizer_config, path_,
                         d_.notes);
    for (const Json& token : member(d_.tokenizer_json, "added_tokens")) {
      d_.added_tokens.push_back(parse_added_token(token, path_, false));
    }
  }

  void append_json(std::string_view key, Json value) {
    if (d_.tokenizer_json.is_null()) d_.tokenizer_json = Json::object();
    append_entry(d_.tokenizer_json, key, std::move(value));
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
      if (!reads_vocabulary_of(type)) continue;
      path_ = directory_ / vocabulary_file_of(type);
      const auto vocabulary = read_text_if_exists(path_);
      if (!vocabulary) continue;
      choose_model_type(type);
      type.read_vocabulary(*vocabulary, path_, d_);
      read_added_tokens_json();
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

  // {"103": {"content": "[MASK]", …}} in tokenizer_config.json; wins over added_tokens.json. With a
  // tokenizer.json only the flags count: ids are those of tokenizer.json.
  void read_added_tokens_decoder() {
    const Json& decoder = member(d_.tokenizer_config, "added_tokens_decoder");
    const bool of_json = !d_.tokenizer_json.is_null();
    for (auto it = decoder.begin(); it != decoder.end(); ++it) {
      AddedToken token = parse_added_token(*it, config_path(), false);
      token.id = of_json ? kNoTokenId : std::atoi(it.key().c_str());
      d_.added_tokens.push_back(std::move(token));
    }
    keep_last_of_each(d_.added_tokens);
  }

  void apply_config_settings() {
    d_.model_max_length = read_model_max_length();
    d_.exact =
        !d_.tokenizer_json.is_null() &&
        (class_ == nullptr ? !has_class_settings() : class_->model.empty() || class_->follows_json);
    if (class_ != nullptr && !class_->model.empty() && class_->model != d_.model_type->name) {
      d_.exact = true;
      d_.notes.push_back(
          fmt::format("'{}': the class {} is for {}, but tokenizer.json holds {}; tandem follows "
                      "tokenizer.json, as transformers 4",
                      path_.string(), named_class_, class_->model, d_.model_type->name));
    }
    d_.tokenizer_class = saved_class();
    d_.token_types = gives_token_types();
    d_.model_type->apply_config(d_.tokenizer_config, config_path(), d_);
  }

  // Without a class, these keys show that the files are of the usual one.
  bool has_class_settings() const {
    for (const char* key : {"do_lower_case", "strip_accents", "tokenize_chinese_chars",
                            "add_prefix_space", "trim_offsets"}) {
      if (!member(d_.tokenizer_config, key).is_null()) return true;
    }
    return false;
  }

  // transformers writes the name without "Fast" where it has the files of the class without it.
  // The general class is written under the name that versions 4 and 5 know.
  std::string saved_class() const {
    if (class_ == nullptr)
      return d_.exact ? "PreTrainedTokenizerFast" : std::string(d_.model_type->tokenizer_class);
    if (class_->model.empty()) return "PreTrainedTokenizerFast";
    return d_.model_type->name == "Unigram" ? named_class_ : std::string(class_->name);
  }

  // model_input_names, else what the class does.
  bool gives_token_types() {
    const Json& names = member(d_.tokenizer_config, "model_input_names");
    if (names.is_array())
      return std::find(names.begin(), names.end(), "token_type_ids") != names.end();
    const TokenizerClass* usual =
        class_ != nullptr ? class_ : find_tokenizer_class(d_.tokenizer_class);
    const bool types = usual == nullptr || usual->token_types;
    if (types && d_.exact && !d_.open_frame && d_.frame.second_type_id == 1) {
      d_.notes.push_back(
          fmt::format("'{}': no model_input_names; the second text of a pair has the token type 1, "
                      "as in transformers 4 (in 5 it has not)",
                      config_path().string()));
    }
    return types;
  }

  std::size_t read_model_max_length() const {
    const double older = value_or(d_.tokenizer_config, "max_len", 1e30, config_path());
    const double length = value_or(d_.tokenizer_config, "model_max_length", older, config_path());
    if (!(length >= 1)) {
      raise<DataError>("'{}': model_max_length is {}, expected at least 1", config_path().string(),
                       length);
    }
    return length < 1e15 ? static_cast<std::size_t>(length) : Tokenizer::kUnlimited;
  }

  // The special tokens are added tokens even where no file lists them as such.
  void resolve_special_tokens() {
    TokenIds ids;
    for (std::size_t id = 0; id < d_.vocabulary.size(); ++id) {
      if (!d_.vocabulary[id].empty()) ids[d_.vocabulary[id]] = static_cast<std::int32_t>(id);
    }
    read_further_special_tokens();
    number_added_tokens(ids, d_.vocabulary.size(), d_.added_tokens);
    check_added_tokens(ids, d_.vocabulary.size(), d_.added_tokens, path_);
    for (const AddedToken& token : d_.added_tokens) ids[token.content] = token.id;
    if (d_.open_frame) {
      find_ids(path_, ids, *d_.open_frame);
    } else {
      require_special_tokens(ids);
    }
    // All are found before one is added: `ids` refers to the texts of the added tokens.
    std::vector<std::pair<std::string, std::int32_t>> found;
    for (const auto& [key, name] : kSpecialTokens) {
      if (const auto id = ids.find(d_.*name); id != ids.end())
        found.emplace_back(d_.*name, id->second);
    }
    for (const auto& [name, id] : found) add_special_token(name, id);
  }

  void require_special_tokens(const TokenIds& ids) {
    d_.unk_id = require("unk_token", d_.unk_token, ids);
    d_.frame.sep_id = require("sep_token", d_.sep_token, ids);
    d_.frame.pad_id = require("pad_token", d_.pad_token, ids);
    d_.frame.cls_id = require("cls_token", d_.cls_token, ids);
  }

  // additional_special_tokens (a list) and extra_special_tokens (a list, or names and tokens).
  // Flags that they give win.
  void read_further_special_tokens() {
    std::unordered_set<std::string> known;
    for (const AddedToken& token : d_.added_tokens) known.insert(token.content);
    read_further(d_.tokenizer_config, config_path(), known);
    if (member(d_.tokenizer_config, "added_tokens_decoder").is_null())
      read_further(d_.special_tokens_map, map_path(), known);
    keep_last_of_each(d_.added_tokens);
  }

  void read_further(const Json& object, const Path& path, std::unordered_set<std::string>& known) {
    for (const char* key :
         {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"}) {
      const Json& tokens = member(object, key);
      if (!tokens.is_structured() && !tokens.is_null())
        raise<DataError>("'{}': \"{}\" has the wrong type: {}", path.string(), key, tokens.dump());
      for (const Json& entry : tokens) {
        AddedToken token = parse_added_token(entry, path, true);
        token.id = kNoTokenId;
        token.special = true;
        const bool is_new = known.insert(token.content).second;
        if (is_new || entry.is_object()) d_.added_tokens.push_back(std::move(token));
      }
    }
  }

  std::int32_t require(const char* role, const std::string& name, const TokenIds& ids) const {
    const auto found = ids.find(name);
    if (found == ids.end()) {
      const SpecialTokenDefaults& names = special_tokens();
      raise<DataError>(
          "'{}': the vocabulary of {} entries has no {} \"{}\"; a vocabulary of this type needs "
          "{}, {}, {} and {} (tokenizer_config.json can give them other names)",
          path_.string(), d_.vocabulary.size(), role, name, names.unk, names.cls, names.sep,
          names.pad);
    }
    return found->second;
  }

  // Flags that the two settings files give win, unless added_tokens_decoder has the tokens.
  void add_special_token(const std::string& name, std::int32_t id) {
    const auto flags = special_flags_.find(name);
    const bool flagged = flags != special_flags_.end() && flags->second;
    const auto known = std::find_if(d_.added_tokens.begin(), d_.added_tokens.end(),
                                    [&](const AddedToken& token) { return token.content == name; });
    const bool is_known = known != d_.added_tokens.end();
    if (is_known && !(flagged && member(d_.tokenizer_config, "added_tokens_decoder").is_null()))
      return;
    AddedToken token;
    token.content = name;
    const bool is_mask = name == d_.mask_token;
    token.normalized = !is_mask && special_tokens().normalized;
    token.lstrip = is_mask && special_tokens().mask_takes_blanks;
    if (flagged) token = *flags->second;
    token.id = id;
    token.special = true;
    if (is_known) {
      *known = std::move(token);
    } else {
      d_.added_tokens.push_back(std::move(token));
    }
  }

  const Path directory_;
  Path path_;                              // file with the vocabulary
  std::string named_class_;                // "" where no file names one
  const TokenizerClass* class_ = nullptr;  // class of that name
  TokenizerDefinition d_;
  // By name, from the two settings files; nothing if they have the name alone.
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
  TokenizerDefinition definition = DefinitionReader(directory, options).read();
  if (options.lower_case) lower_case_in_front(directory, definition);
  return definition;
}

}  // namespace tandem::text
