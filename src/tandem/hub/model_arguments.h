// Which model to load, and from where: the "model" group of run_qa.py's arguments, with Hugging
// Face's names and defaults. A plain struct; apps/arguments fills it from the command line.
#pragma once

#include <optional>
#include <string>

namespace tandem::hub {

struct ModelArguments {
  // A directory, or a name in the Hugging Face cache. Empty: a new model.
  std::string model_name_or_path;
  // The base model of an adapter; none: the one that the adapter names.
  std::optional<std::string> base_name_or_path;
  // The family of a new model without config_name, and "key=value,key=value" of its config.json.
  std::optional<std::string> model_type, config_overrides;
  std::optional<std::string> config_name;  // where config.json comes from, when not from the model
  std::optional<std::string>
      tokenizer_name;                    // where the tokenizer comes from, when not from the model
  std::optional<std::string> cache_dir;  // root of the hub cache; wins over the environment
  std::string model_revision = "main";   // branch, tag or commit id
  std::optional<std::string> token;      // access token of the Hub; never printed
  bool ignore_mismatched_sizes = false;  // draw anew what the checkpoint has in another shape
  bool trust_remote_code = false;        // accepted; tandem never runs a model's code

  bool is_new_model() const { return model_name_or_path.empty(); }
};

}  // namespace tandem::hub
