// Finds models and data sets by name: an existing directory, else the Hugging Face cache on this
// machine. Downloading is not there yet. Layout of the cache (huggingface_hub):
//   <root>/models--<org>--<name>/refs/<revision>          a commit id
//   <root>/models--<org>--<name>/snapshots/<commit>/…     the files, links into blobs/
//   <root>/models--<org>--<name>/.no_exist/<commit>/…     files known not to exist in that commit
// Data sets use datasets--<org>--<name>. All functions only read the file system; they are
// thread-safe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/hub/model_arguments.h"

namespace tandem::hub {

enum class RepositoryType { kModel, kDataset };

// What to look for, and where.
struct Query {
  std::string name;  // a directory, "name" or "org/name"
  RepositoryType type = RepositoryType::kModel;
  std::string revision = "main";         // branch, tag or commit id
  std::optional<std::string> cache_dir;  // root of the cache; wins over the environment
  // A snapshot counts only when it holds one of these files (an interrupted download may have left
  // others). Empty: any file.
  std::vector<std::string> any_of;
};

struct Resolved {
  std::filesystem::path directory;
  std::optional<std::string> commit;  // of a snapshot; nothing for a plain directory
};

// Root of the hub cache: cache_dir, TRANSFORMERS_CACHE, PYTORCH_TRANSFORMERS_CACHE,
// PYTORCH_PRETRAINED_BERT_CACHE (these three for models only), HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE,
// $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub,
// ~/.cache/huggingface/hub: the first that is set. Throws ConfigError when not even HOME is.
std::filesystem::path cache_root(RepositoryType type, const std::optional<std::string>& cache_dir,
                                 const Environment& environment);

// The names under which a repository may be cached: the given one, then its other canonical form
// (bert-* and google-bert/bert-*, distilbert-* and distilbert/distilbert-*, squad and
// rajpurkar/squad, squad_v2 and rajpurkar/squad_v2).
std::vector<std::string> aliases(std::string_view name, RepositoryType type);

// Throws DataError that lists every place looked at and why it did not do, the expected layout, and
// what to try.
Resolved resolve(const Query& query, const Environment& environment);

// Whether the cache knows that `file` does not exist in the snapshot `resolved`.
bool known_absent(const Resolved& resolved, std::string_view file);

// Where the parts of a model come from. The directories may be the same.
struct ModelLocation {
  Resolved model;
  std::filesystem::path config_directory;     // holds config.json
  std::filesystem::path tokenizer_directory;  // holds tokenizer.json or vocab.txt
};

// model_name_or_path, config_name and tokenizer_name (each at model_revision, as run_qa.py does).
// Throws DataError as above, and for a model directory without config.json.
ModelLocation resolve_model(const ModelArguments& arguments, const Environment& environment);

}  // namespace tandem::hub
