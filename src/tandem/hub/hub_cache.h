// Finds models and data sets by name: an existing directory, else the Hugging Face cache on this
// machine; model_files.h and dataset_files.h download what is not there. Layout of the cache
// (huggingface_hub):
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
#include "tandem/hub/hub_settings.h"

namespace tandem::hub {

// The file to look for, and its possible locations.
struct Query {
  std::string name;  // a directory, "name" or "org/name"
  RepositoryType type = RepositoryType::kModel;
  std::string revision = "main";         // branch, tag or commit id
  std::optional<std::string> cache_dir;  // root of the cache; wins over the environment
  // A snapshot counts only when it holds one file of each group (an interrupted download may have
  // left others).
  std::vector<std::vector<std::string>> needs;
};

struct Resolved {
  std::filesystem::path directory;
  std::optional<std::string> commit;  // commit of a snapshot; nothing for a plain directory
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

// A place that was looked at, and why it did not do.
struct Attempt {
  std::filesystem::path path;
  std::string problem;
};

// The directory or the snapshot, without any connection; nothing if neither exists, with all places
// in `attempts`. Throws ConfigError for an empty name and a revision that would leave the cache.
std::optional<Resolved> find_cached(const Query& query, const Environment& environment,
                                    std::vector<Attempt>& attempts);

// A DataError that lists every place looked at, the expected layout, `why_no_download`, and what to
// try.
[[noreturn]] void throw_not_found(const Query& query, const std::vector<Attempt>& attempts,
                                  std::string_view why_no_download);

// find_cached(), or throw_not_found().
Resolved resolve(const Query& query, const Environment& environment);

// "models--org--name".
std::string cache_folder_name(std::string_view name, RepositoryType type);
// "name" or "org/name": anything else can only have been meant as a path.
bool is_repository_name(std::string_view name);

// Whether the cache knows that `file` does not exist in the snapshot `resolved`.
bool known_absent(const Resolved& resolved, std::string_view file);

}  // namespace tandem::hub
