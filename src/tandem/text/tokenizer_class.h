// The tokenizer classes of transformers whose rules tandem has. Internal to text.
#pragma once

#include <string_view>
#include <vector>

namespace tandem::text {

struct SpecialTokenDefaults;  // tokenizer_model.h

struct TokenizerClass {
  std::string_view name;   // without "Fast"
  std::string_view model;  // the type of model that the class sets up; "": tokenizer.json decides
  bool token_types;        // whether the class gives token_type_ids by default
  // The names of special tokens; null: those of the type of model.
  const SpecialTokenDefaults* special_tokens = nullptr;
  // The class leaves tokenizer.json as it is, and tandem reads no other vocabulary for it.
  bool follows_json = false;
  // The file of the vocabulary; "": that of the type of model.
  std::string_view vocabulary_file = {};
};

// The class of this name, with or without "Fast"; null when tandem does not have its rules.
const TokenizerClass* find_tokenizer_class(std::string_view name);

// The class that transformers takes for a model_type of config.json; null as above.
const TokenizerClass* tokenizer_class_of_model(std::string_view model_type);

// The names of all, for messages.
std::vector<std::string_view> tokenizer_class_names();

}  // namespace tandem::text
