// From the name of a model to its files: an existing directory, the Hugging Face cache, or the Hub.
#pragma once

#include <filesystem>

#include "tandem/core/env.h"
#include "tandem/hub/download_observer.h"
#include "tandem/hub/hub_cache.h"
#include "tandem/hub/model_arguments.h"

namespace tandem::hub {

// The parts of a model to fetch.
struct ModelParts {
  bool config = false;
  bool tokenizer = false;  // tokenizer.json or a vocabulary, and the files next to them
  bool weights = false;    // in the first of the forms of weight_files.h that there is
  bool sentence = false;   // modules.json of sentence-transformers and what it names, if present
};

// The directory that holds all these parts. Cached files are used without asking the Hub whether
// they changed. Missing files are downloaded into the cache, unless an offline variable forbids it.
// Processes of one or more hosts may call it for the same name at once: one downloads, the others
// wait for it.
// Throws DataError with every place and address that was tried, IoError for network and disk.
Resolved locate_model(const Query& query, const ModelParts& parts, const Environment& environment,
                      DownloadObserver& observer,
                      const std::optional<std::string>& token = std::nullopt);

// Where the parts of a model come from. The directories may be the same.
struct ModelLocation {
  Resolved model;                             // empty: a new model; the base of an adapter
  std::filesystem::path adapter;              // directory of an adapter of PEFT; empty: none
  std::filesystem::path config_directory;     // holds config.json; empty: there is no file
  std::filesystem::path tokenizer_directory;  // holds tokenizer.json or a vocabulary

  // Holds the files of sentence-transformers if there are any: the adapter's, or the model's.
  const std::filesystem::path& sentence_directory() const;
};

// model_name_or_path, config_name and tokenizer_name (each at model_revision, as run_qa.py does).
// Throws as above, DataError for a model directory without config.json, and ConfigError for a new
// model without tokenizer_name, without model_type and config_name, or with config_overrides that
// nothing reads.
// A directory or a snapshot in the cache with adapter_config.json is an adapter. Its base model is
// base_name_or_path, or the one that the file names; it may be downloaded. config.json and the
// tokenizer are the adapter's if it has them.
// `sentence`: the files of sentence-transformers, too. A copy in the cache without modules.json is
// completed from the Hub, unless the Hub was found to have none, or cannot be reached.
ModelLocation resolve_model(const ModelArguments& arguments, const Environment& environment,
                            DownloadObserver& observer, bool sentence = false);

}  // namespace tandem::hub
