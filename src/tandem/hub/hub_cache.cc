#include "tandem/hub/hub_cache.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/volume.h"
#include "tandem/hub/hub_protocol.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;

// A revision goes into a path: it must not leave the cache.
void check_revision(std::string_view revision) {
  if (revision.empty() || revision.front() == '/' ||
      revision.find("..") != std::string_view::npos) {
    raise<ConfigError>("the revision '{}' is neither a branch, a tag nor a commit id", revision);
  }
}

std::string without_end_blanks(std::string text) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.pop_back();
  return text;
}

// The snapshot of one repository folder, or what is missing.
std::optional<Resolved> find_snapshot(const fs::path& repository, const Query& query,
                                      std::vector<Attempt>& attempts) {
  if (!is_directory_there(repository)) {
    attempts.push_back({repository, "no such folder"});
    return std::nullopt;
  }
  std::string commit = query.revision;
  const fs::path reference = repository / "refs" / query.revision;
  if (!is_directory_there(reference)) {
    if (const auto text = read_file_if_exists(reference)) commit = without_end_blanks(*text);
  }
  const fs::path snapshot = repository / "snapshots" / commit;
  if (commit == query.revision && !is_directory_there(snapshot)) {
    attempts.push_back({reference, is_commit_id(query.revision) ? "no snapshot of this commit"
                                                                : "no such revision"});
    return std::nullopt;
  }
  if (!is_directory_there(snapshot)) {
    attempts.push_back(
        {snapshot, fmt::format("absent, although refs/{} names it", query.revision)});
    return std::nullopt;
  }
  const auto present = [&](const std::string& file) { return is_there(snapshot / file); };
  for (const std::vector<std::string>& group : query.needs) {
    if (std::any_of(group.begin(), group.end(), present)) continue;
    attempts.push_back({snapshot, fmt::format("holds no {} (perhaps an interrupted download)",
                                              fmt::join(group, " or "))});
    return std::nullopt;
  }
  return Resolved{snapshot, commit};
}

}  // namespace

std::string cache_folder_name(std::string_view name, RepositoryType type) {
  std::string folder = type == RepositoryType::kModel ? "models--" : "datasets--";
  for (const char c : name) folder += c == '/' ? std::string("--") : std::string(1, c);
  return folder;
}

bool is_repository_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.front() == '.' || name.front() == '~' ||
      name.back() == '/')
    return false;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  };
  return std::count(name.begin(), name.end(), '/') <= 1 &&
         name.find("..") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), allowed);
}

[[noreturn]] void throw_not_found(const Query& query, const std::vector<Attempt>& attempts,
                                  std::string_view why_no_download) {
  const bool model = query.type == RepositoryType::kModel;
  std::string message = fmt::format(
      "the {} '{}' was not found; looked at:", model ? "model" : "data set", query.name);
  for (const Attempt& attempt : attempts)
    message += fmt::format("\n  {}: {}", attempt.path.string(), attempt.problem);
  if (is_repository_name(query.name)) {
    message += fmt::format(
        "\nexpected in a cache: <root>/{0}/refs/{1} with a commit id, and "
        "<root>/{0}/snapshots/<commit>/ with the files",
        cache_folder_name(query.name, query.type), query.revision);
  }
  if (!why_no_download.empty()) message += fmt::format("\n{}", why_no_download);
  message +=
      fmt::format("\nset HF_HOME or --cache_dir to a cache that has it, or pass a directory{}",
                  model ? " with config.json, model.safetensors and the tokenizer's files"
                        : ", or give --train_file and --validation_file");
  throw DataError(message);
}

fs::path cache_root(RepositoryType type, const std::optional<std::string>& cache_dir,
                    const Environment& environment) {
  if (cache_dir && !cache_dir->empty()) return expand_home(*cache_dir, environment);
  if (type == RepositoryType::kModel) {
    for (const char* name :
         {"TRANSFORMERS_CACHE", "PYTORCH_TRANSFORMERS_CACHE", "PYTORCH_PRETRAINED_BERT_CACHE"}) {
      if (const auto value = environment.get(name)) return expand_home(*value, environment);
    }
  }
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto value = environment.get(name)) return expand_home(*value, environment);
  }
  if (const auto home = huggingface_home(environment)) return fs::path(*home) / "hub";
  raise<ConfigError>("the Hugging Face cache cannot be located: set HOME, HF_HOME or --cache_dir");
}

std::vector<std::string> aliases(std::string_view name, RepositoryType type) {
  std::vector<std::string> names = {std::string(name)};
  const auto add_both = [&](std::string_view organisation, std::string_view stem, bool exact) {
    const std::string prefix = fmt::format("{}/", organisation);
    const bool qualified = name.starts_with(prefix);
    const std::string_view bare = qualified ? name.substr(prefix.size()) : name;
    if (bare.find('/') != std::string_view::npos) return;
    if (exact ? bare != stem : !bare.starts_with(stem)) return;
    names.push_back(qualified ? std::string(bare) : prefix + std::string(bare));
  };
  if (type == RepositoryType::kModel) {
    add_both("google-bert", "bert-", /*exact=*/false);
    add_both("distilbert", "distilbert-", /*exact=*/false);
  } else {
    add_both("rajpurkar", "squad", /*exact=*/true);
    add_both("rajpurkar", "squad_v2", /*exact=*/true);
  }
  return names;
}

std::optional<Resolved> find_cached(const Query& query, const Environment& environment,
                                    std::vector<Attempt>& attempts) {
  if (query.name.empty()) raise<ConfigError>("the name of a model or data set is empty");
  if (is_directory_there(query.name)) return Resolved{query.name, std::nullopt};
  attempts.push_back(
      {query.name, is_there(query.name) ? "a file, expected a directory" : "no such directory"});
  if (!is_repository_name(query.name) || is_there(query.name)) return std::nullopt;
  check_revision(query.revision);
  const fs::path root = cache_root(query.type, query.cache_dir, environment);
  for (const std::string& name : aliases(query.name, query.type)) {
    if (auto found = find_snapshot(root / cache_folder_name(name, query.type), query, attempts))
      return found;
  }
  return std::nullopt;
}

Resolved resolve(const Query& query, const Environment& environment) {
  std::vector<Attempt> attempts;
  if (auto found = find_cached(query, environment, attempts)) return *found;
  throw_not_found(query, attempts, "");
}

bool known_absent(const Resolved& resolved, std::string_view file) {
  if (!resolved.commit) return false;
  return is_there(resolved.directory.parent_path().parent_path() / ".no_exist" / *resolved.commit /
                  fs::path(file));
}

}  // namespace tandem::hub
