#include "tandem/hub/model_files.h"

#include <algorithm>
#include <system_error>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/volume.h"
#include "tandem/hub/hub_protocol.h"
#include "tandem/hub/snapshot_download.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kConfigFiles = {"config.json"};
// One of these makes a tokenizer; the others belong to it when they are there.
const std::vector<std::string> kTokenizerFiles = {"tokenizer.json", "vocab.txt", "vocab.json",
                                                  "sentencepiece.bpe.model", "spm.model"};
const std::vector<std::string> kTokenizerExtras = {"merges.txt", "tokenizer_config.json",
                                                   "special_tokens_map.json", "added_tokens.json"};
// As in models/pretrained/weight_files.h, which reads them.
const std::vector<std::string> kWeightFiles = {"model.safetensors", "model.safetensors.index.json",
                                               "pytorch_model.bin", "pytorch_model.bin.index.json"};

// Files of sentence-transformers; modules.json names the directories of further ones.
const std::string kModules = "modules.json";
const std::vector<std::string> kSentenceFiles = {
    "config_sentence_transformers.json", "sentence_bert_config.json",
    "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_xlm-roberta_config.json"};

bool is_index(const std::string& file) { return file.ends_with(".index.json"); }

std::vector<std::vector<std::string>> needs_of(const ModelParts& parts) {
  std::vector<std::vector<std::string>> needs;
  if (parts.config) needs.push_back(kConfigFiles);
  if (parts.tokenizer) needs.push_back(kTokenizerFiles);
  if (parts.weights) needs.push_back(kWeightFiles);
  return needs;
}

// Whether the weights that would be read from a snapshot are an index some of whose shards are not
// there.
bool lacks_shards(const fs::path& snapshot) {
  for (const std::string& file : kWeightFiles) {
    if (!is_there(snapshot / file)) continue;
    if (!is_index(file)) return false;
    const auto shards = parse_shard_names(read_file(snapshot / file), (snapshot / file).string());
    return !std::all_of(shards.begin(), shards.end(),
                        [&](const std::string& shard) { return is_there(snapshot / shard); });
  }
  return false;
}

// A list of the repository's files for a message; empty if the request fails.
std::string what_there_is(SnapshotDownload& download) {
  try {
    const RepositoryListing listing = download.list();
    const std::size_t shown = std::min<std::size_t>(listing.files.size(), 20);
    const std::vector<std::string> first(
        listing.files.begin(), listing.files.begin() + static_cast<std::ptrdiff_t>(shown));
    return fmt::format("; it holds {}{}", fmt::join(first, ", "),
                       shown < listing.files.size() ? " …" : "");
  } catch (const Error&) {
    return "";
  }
}

// The first of `files` that there is, or an empty text.
std::string fetch_first(SnapshotDownload& download, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (download.fetch(file)) return file;
  }
  return "";
}

[[noreturn]] void lacks(SnapshotDownload& download, const std::string& name,
                        const std::string& what, const std::vector<std::string>& files) {
  // A server without error codes gives the same answer for a repository that it does not have.
  const bool unknown = !download.commit();
  const std::string problem = fmt::format(
      "the repository '{}' on the Hub has no {} ({} does not exist){}; choose another "
      "model or revision",
      name, what, download.url(files.front()), what_there_is(download));
  if (unknown) throw RepositoryNotFound(problem);
  throw DataError(problem);
}

void fetch_sentence_files(SnapshotDownload& download) {
  for (const std::string& file : kSentenceFiles) download.fetch(file);
  if (!download.fetch(kModules)) return;
  const fs::path modules = download.directory() / kModules;
  for (const std::string& directory : parse_module_paths(read_file(modules), modules.string())) {
    download.fetch(directory + "/config.json");
    fetch_first(download, {directory + "/model.safetensors", directory + "/pytorch_model.bin"});
  }
}

void fetch_parts(SnapshotDownload& download, const std::string& name, const ModelParts& parts) {
  if (parts.config && fetch_first(download, kConfigFiles).empty())
    lacks(download, name, "config.json", kConfigFiles);
  if (parts.tokenizer) {
    bool found = false;
    for (const std::string& file : kTokenizerFiles) found |= download.fetch(file);
    if (!found)
      lacks(download, name,
            "tokenizer.json, vocab.txt, vocab.json, sentencepiece.bpe.model or spm.model",
            kTokenizerFiles);
    for (const std::string& file : kTokenizerExtras) download.fetch(file);
  }
  if (parts.sentence) fetch_sentence_files(download);
  if (parts.weights) {
    const std::string weights = fetch_first(download, kWeightFiles);
    if (weights.empty()) lacks(download, name, "weights that tandem reads", kWeightFiles);
    if (!is_index(weights)) return;
    const fs::path index = download.directory() / weights;
    for (const std::string& shard : parse_shard_names(read_file(index), index.string())) {
      if (!download.fetch(shard)) lacks(download, name, "shard " + shard, {shard});
    }
  }
}

// For the end of an error message: where the files would have been, had they been there.
std::string attempted_paths(const std::vector<Attempt>& attempts) {
  std::string text = "\nlooked at before:";
  for (const Attempt& attempt : attempts)
    text += fmt::format("\n  {}: {}", attempt.path.string(), attempt.problem);
  return text;
}

struct BegunDownload {
  std::string name, commit;
};

// The name and commit under which a part of the wanted revision is in the cache already.
std::optional<BegunDownload> begun_download(const Query& query, const Environment& environment) {
  for (const std::string& name : aliases(query.name, query.type)) {
    const fs::path folder =
        cache_root(query.type, query.cache_dir, environment) / cache_folder_name(name, query.type);
    const auto reference = is_there(folder / "refs" / query.revision) &&
                                   !is_directory_there(folder / "refs" / query.revision)
                               ? read_file_if_exists(folder / "refs" / query.revision)
                               : std::nullopt;
    if (reference && is_commit_id(*reference)) return BegunDownload{name, *reference};
    if (is_commit_id(query.revision) && is_there(folder / "snapshots" / query.revision))
      return BegunDownload{name, query.revision};
  }
  return std::nullopt;
}

// One model looked for: in the cache, then at the Hub.
class ModelSearch {
 public:
  ModelSearch(const Query& query, const ModelParts& parts, const Environment& environment)
      : query_(query), parts_(parts), environment_(environment) {
    query_.needs = needs_of(parts);
  }

  std::optional<Resolved> cached() {
    attempts_.clear();
    auto found = find_cached(query_, environment_, attempts_);
    if (found && found->commit && parts_.weights && lacks_shards(found->directory)) {
      attempts_.push_back({found->directory, "holds only some shards of the weights"});
      return std::nullopt;
    }
    return found;
  }
  // Whether files of sentence-transformers may be missing, which only the Hub knows.
  bool may_lack_modules(const Resolved& found) const {
    return parts_.sentence && found.commit && !is_there(found.directory / kModules) &&
           !known_absent(found, kModules);
  }

  // Downloads the files that the cache lacks. After cached().
  Resolved download(const HubSettings& settings, DownloadObserver& observer) {
    try {
      if (const auto begun = begun_download(query_, environment_))
        return download_parts(begun->name, begun->commit, settings, observer);
      Resolved resolved;
      download_under_any_name(query_.name, query_.type, [&](const std::string& name) {
        resolved = download_parts(name, std::nullopt, settings, observer);
      });
      return resolved;
    } catch (const DataError& error) {
      throw DataError(error.what() + attempted_paths(attempts_));
    } catch (const IoError& error) {
      throw IoError(error.what() + attempted_paths(attempts_));
    }
  }

  [[noreturn]] void fail(const std::string& why) const { throw_not_found(query_, attempts_, why); }

 private:
  Resolved download_parts(const std::string& name, const std::optional<std::string>& commit,
                          const HubSettings& settings, DownloadObserver& observer) {
    SnapshotDownload download(cache_root(query_.type, query_.cache_dir, environment_),
                              {name, query_.type}, query_.revision, commit, settings, observer);
    // Another process may have downloaded it meanwhile.
    if (const auto found = cached(); found && !may_lack_modules(*found)) return *found;
    fetch_parts(download, name, parts_);
    return {download.directory(), download.commit()};
  }

  Query query_;
  const ModelParts& parts_;
  const Environment& environment_;
  std::vector<Attempt> attempts_;  // attempts of the last look into the cache
};

// As run_mlm.py, which has no other models without a name.
void check_new_model(const ModelArguments& arguments) {
  const auto conflict = [&](bool found, std::string_view other) {
    if (!arguments.config_overrides || !found) return;
    raise<ConfigError>(
        "--config_overrides: found --{} too, whose config.json it cannot change; pass --model_type "
        "instead of --{}",
        other, other);
  };
  conflict(!arguments.is_new_model(), "model_name_or_path");
  conflict(arguments.config_name.has_value(), "config_name");
  if (!arguments.is_new_model()) return;
  if (!arguments.config_name && !arguments.model_type) {
    raise<ConfigError>(
        "found no model: pass --model_name_or_path, or --model_type or --config_name for a new "
        "model");
  }
  if (!arguments.tokenizer_name) {
    raise<ConfigError>(
        "a new model: found no --tokenizer_name, expected one; tandem trains no tokenizers");
  }
}

constexpr const char* kAdapterConfig = "adapter_config.json";

// The directory of an adapter of this name, if it is one.
std::optional<fs::path> find_adapter(const ModelArguments& arguments,
                                     const Environment& environment) {
  if (is_directory_there(arguments.model_name_or_path)) {
    if (!is_there(fs::path(arguments.model_name_or_path) / kAdapterConfig)) return std::nullopt;
    return arguments.model_name_or_path;
  }
  std::vector<Attempt> attempts;
  const auto found = find_cached({arguments.model_name_or_path,
                                  RepositoryType::kModel,
                                  arguments.model_revision,
                                  arguments.cache_dir,
                                  {{kAdapterConfig}}},
                                 environment, attempts);
  return found ? std::optional(found->directory) : std::nullopt;
}

// The base model that an adapter names, and its revision.
struct BaseName {
  std::string name, revision;
};

BaseName read_base_name(const fs::path& adapter) {
  const fs::path file = adapter / kAdapterConfig;
  const auto config = try_parse_json(read_file(file));
  const auto text = [&](const char* key) {
    const auto found = config.is_object() ? config.find(key) : config.end();
    return config.is_object() && found != config.end() && found->is_string()
               ? found->get<std::string>()
               : std::string();
  };
  const std::string revision = text("revision");
  BaseName base{text("base_model_name_or_path"),
                revision.empty() ? ModelArguments{}.model_revision : revision};
  if (base.name.empty()) {
    raise<DataError>("{}: found no base_model_name_or_path, expected the model that it adapts",
                     file.string());
  }
  return base;
}

bool holds_tokenizer(const fs::path& directory) {
  return std::ranges::any_of(kTokenizerFiles,
                             [&](const std::string& file) { return is_there(directory / file); });
}

}  // namespace

namespace {

// The base model of an adapter, with config.json and tokenizer of the adapter if it has them.
ModelLocation resolve_adapter(const fs::path& adapter, const ModelArguments& arguments,
                              const Environment& environment, DownloadObserver& observer,
                              bool sentence) {
  BaseName base = read_base_name(adapter);
  if (arguments.base_name_or_path)
    base = {*arguments.base_name_or_path, ModelArguments{}.model_revision};
  ModelArguments of_base = arguments;
  of_base.model_name_or_path = base.name;
  of_base.model_revision = base.revision;
  if (holds_tokenizer(adapter) && !of_base.tokenizer_name)
    of_base.tokenizer_name = adapter.string();
  ModelLocation location = resolve_model(of_base, environment, observer, sentence);
  if (!location.adapter.empty()) {
    raise<DataError>(
        "{}: found the adapter {} as base model, expected a whole model; merge it first: tandem "
        "merge {}",
        adapter.string(), location.adapter.string(), base.name);
  }
  location.adapter = adapter;
  if (!arguments.config_name && is_there(adapter / "config.json"))
    location.config_directory = adapter;
  return location;
}

}  // namespace

const fs::path& ModelLocation::sentence_directory() const {
  return !adapter.empty() && is_there(adapter / kModules) ? adapter : model.directory;
}

Resolved locate_model(const Query& query, const ModelParts& parts, const Environment& environment,
                      DownloadObserver& observer, const std::optional<std::string>& token) {
  ModelSearch search(query, parts, environment);
  const auto found = search.cached();
  if (found && !search.may_lack_modules(*found)) return *found;
  if (!is_repository_name(query.name) || is_there(query.name)) search.fail("");
  const HubSettings settings = hub_settings(environment, token, query.type);
  if (settings.offline && found) return *found;
  if (settings.offline) {
    search.fail(
        fmt::format("{} is set: nothing was asked of {}", *settings.offline, settings.endpoint));
  }
  try {
    return search.download(settings, observer);
  } catch (const IoError& error) {
    if (!found) throw;
    observer.note(fmt::format("{}: the copy in the cache is used, which has no {}: {}", query.name,
                              kModules, error.what()));
    return *found;
  }
}

ModelLocation resolve_model(const ModelArguments& arguments, const Environment& environment,
                            DownloadObserver& observer, bool sentence) {
  const auto locate = [&](const std::string& name, const ModelParts& parts) {
    return locate_model(
        {name, RepositoryType::kModel, arguments.model_revision, arguments.cache_dir, {}}, parts,
        environment, observer, arguments.token);
  };
  check_new_model(arguments);
  ModelLocation location;
  if (arguments.is_new_model()) {
    location.tokenizer_directory = locate(*arguments.tokenizer_name, {.tokenizer = true}).directory;
    if (!arguments.config_name) return location;
    location.config_directory = locate(*arguments.config_name, {.config = true}).directory;
    return location;
  }
  if (const auto adapter = find_adapter(arguments, environment))
    return resolve_adapter(*adapter, arguments, environment, observer, sentence);
  location.model = locate(arguments.model_name_or_path, {.config = true,
                                                         .tokenizer = !arguments.tokenizer_name,
                                                         .weights = true,
                                                         .sentence = sentence});
  location.config_directory = arguments.config_name
                                  ? locate(*arguments.config_name, {.config = true}).directory
                                  : location.model.directory;
  location.tokenizer_directory =
      arguments.tokenizer_name ? locate(*arguments.tokenizer_name, {.tokenizer = true}).directory
                               : location.model.directory;
  if (!is_there(location.config_directory / "config.json")) {
    raise<DataError>(
        "{}: no config.json; expected a model directory with config.json, model.safetensors and "
        "the tokenizer's files",
        location.config_directory.string());
  }
  return location;
}

}  // namespace tandem::hub
