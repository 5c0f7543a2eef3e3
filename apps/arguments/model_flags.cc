#include "apps/arguments/flags.h"

namespace tandem::apps {

using hub::ModelArguments;

FlagTable model_flags() {
  return grouped(
      "Model",
      {
          flag("model_name_or_path", field<&ModelArguments::model_name_or_path>(),
               "model directory, or a model's name in the Hugging Face cache or on the Hub")
              .as_required(),
          flag("config_name", field<&ModelArguments::config_name>(),
               "name or directory of config.json, if not the model's"),
          flag("tokenizer_name", field<&ModelArguments::tokenizer_name>(),
               "name or directory of the tokenizer, if not the model's"),
          flag("cache_dir", field<&ModelArguments::cache_dir>(),
               "root of the Hugging Face cache; wins over HF_HOME and its relatives")
              .as_path(),
          flag("model_revision", field<&ModelArguments::model_revision>(),
               "branch, tag or commit id of the model"),
          flag("token", field<&ModelArguments::token>(),
               "access token of the Hub; else HF_TOKEN or the stored one")
              .as_secret()
              .with_bare()
              .alias("use_auth_token", "since transformers 4.34 the flag is --token"),
          flag("ignore_mismatched_sizes", field<&ModelArguments::ignore_mismatched_sizes>(),
               "draw parameters anew that the checkpoint has in another shape, as a head for "
               "another number of labels"),
          flag("trust_remote_code", field<&ModelArguments::trust_remote_code>(),
               "run code that comes with a model")
              .ruled(Verdict::kNote, "tandem never runs code that comes with a model"),
      });
}

}  // namespace tandem::apps
