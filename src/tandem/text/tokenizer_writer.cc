// The files of a tokenizer as transformers writes them.
#include <algorithm>
#include <optional>
#include <utility>

#include "tandem/core/file.h"
#include "tandem/core/python_json.h"
#include "tandem/text/tokenizer_files.h"
#include "tandem/text/tokenizer_json.h"
#include "tandem/text/tokenizer_model.h"

namespace tandem::text {
namespace {

// Hugging Face's number for "no limit": int(1e30).
constexpr std::string_view kUnlimitedDigits = "1000000000000000019884624838656";

Json added_token_json(const AddedToken& token) {
  return {{"content", token.content},       {"single_word", token.single_word},
          {"lstrip", token.lstrip},         {"rstrip", token.rstrip},
          {"normalized", token.normalized}, {"special", token.special}};
}

Json tokenizer_json(const TokenizerDefinition& d) {
  Json added = Json::array();
  for (const AddedToken& token : d.added_tokens) {
    Json json = {{"id", token.id}};
    json.update(added_token_json(token));
    added.push_back(std::move(json));
  }
  Json json = {{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", std::move(added)}};
  Json sections = d.model_type->sections(d);
  for (auto section = sections.begin(); section != sections.end(); ++section)
    append_entry(json, section.key(), std::move(*section));
  return json;
}

Json tokenizer_config(const TokenizerDefinition& d) {
  Json config = d.tokenizer_config.is_null() ? Json::object() : d.tokenizer_config;
  for (const char* local : {"name_or_path", "special_tokens_map_file", "tokenizer_file"}) {
    config.erase(local);
  }
  config.erase("added_tokens_decoder");  // made anew in sorted_config
  if (!config.contains("clean_up_tokenization_spaces")) {
    config["clean_up_tokenization_spaces"] = true;
  }
  for (const auto& [key, name] : kSpecialTokens)
    if (!(d.*name).empty()) config[key] = d.*name;
  d.model_type->write_config(d, config);
  config["tokenizer_class"] = d.tokenizer_class;
  config["model_max_length"] =
      d.model_max_length == Tokenizer::kUnlimited ? Json(1e30) : Json(d.model_max_length);
  return config;
}

// Keys in Python's order: strings sorted, except that added_tokens_decoder's keys are integers
// there.
Json sorted_config(const TokenizerDefinition& d) {
  const auto sort = [](const Json& json) { return Json(nlohmann::json(json)); };
  Json decoder = Json::object();
  std::optional<std::int32_t> before;
  for (const AddedToken& token : d.added_tokens) {  // by id
    if (before != token.id) append_entry(decoder, std::to_string(token.id), nullptr);
    decoder.back() = sort(added_token_json(token));
    before = token.id;
  }
  Json config = tokenizer_config(d);
  config["added_tokens_decoder"] = nullptr;  // keeps the place
  config = sort(config);
  config["added_tokens_decoder"] = decoder;
  return config;
}

// JSON numbers of Python have any number of digits; ordered_json's have 64 bits.
std::string with_unlimited_digits(std::string text) {
  constexpr std::string_view key = "\"model_max_length\": ", value = "1e+30";
  const std::size_t at = text.find(std::string(key) + std::string(value));
  if (at != std::string::npos) text.replace(at + key.size(), value.size(), kUnlimitedDigits);
  return text;
}

Json special_tokens_map(const TokenizerDefinition& d) {
  Json map = d.special_tokens_map.is_null() ? Json::object() : d.special_tokens_map;
  for (const auto& [key, member_name] : kSpecialTokens) {
    const std::string& name = d.*member_name;
    if (name.empty() || map.contains(key)) continue;
    // transformers writes a token in full where tokenizer_config.json names it and tokenizer.json
    // has it among its added tokens, or where its class gives the token flags (a mask that takes
    // blanks); otherwise its text.
    const bool named = d.tokenizer_config.is_object() && d.tokenizer_config.contains(key);
    const auto added = std::find_if(d.added_tokens.begin(), d.added_tokens.end(),
                                    [&](const AddedToken& token) { return token.content == name; });
    const bool known = added != d.added_tokens.end();
    if (!known || !(added->lstrip || (named && !d.tokenizer_json.is_null()))) {
      map[key] = name;
      continue;
    }
    map[key] = added_token_json(*added);
    map[key].erase("special");
  }
  return map;
}

}  // namespace

Json vocabulary_json(const TokenizerDefinition& definition) {
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < definition.vocabulary.size(); ++id) {
    if (!definition.vocabulary[id].empty()) append_entry(vocabulary, definition.vocabulary[id], id);
  }
  return vocabulary;
}

void write_tokenizer_definition(const TokenizerDefinition& definition,
                                const std::filesystem::path& directory) {
  const PythonJsonOptions as_read{.indent = 2, .ensure_ascii = false};
  const PythonJsonOptions sorted{.indent = 2, .sort_keys = true, .ensure_ascii = false};
  write_file(directory / "tokenizer.json", python_json(tokenizer_json(definition), as_read));
  for (const VocabularyFile& file : definition.model_type->vocabulary_files(definition))
    write_file(directory / file.name, file.content);
  write_file(directory / "tokenizer_config.json",
             with_unlimited_digits(python_json(sorted_config(definition), as_read)) + "\n");
  write_file(directory / "special_tokens_map.json",
             python_json(special_tokens_map(definition), sorted) + "\n");
  if (definition.chat_template_file)
    write_file(directory / "chat_template.jinja", definition.chat_template);
}

}  // namespace tandem::text
