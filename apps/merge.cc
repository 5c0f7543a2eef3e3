// `tandem merge ADAPTER --output_dir DIR`: an adapter of PEFT and its base model as one model.
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/download_progress.h"
#include "tandem/core/error.h"
#include "tandem/hub/model_files.h"
#include "tandem/models/pretrained/merged_model.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;

struct MergeFlags {
  hub::ModelArguments model;
  fs::path output_dir;
};

void add_flags(CLI::App& app, MergeFlags& options) {
  app.add_option("adapter", options.model.model_name_or_path,
                 "adapter directory, or a name in the Hugging Face cache")
      ->required();
  app.add_option("--model_name_or_path,--model", options.model.base_name_or_path,
                 "base model; default: the one that the adapter names");
  app.add_option("--output_dir", options.output_dir, "directory that gets the merged model")
      ->required();
  app.add_option("--model_revision", options.model.model_revision,
                 "branch, tag or commit id of the adapter");
  app.add_option("--cache_dir", options.model.cache_dir, "root of the Hugging Face cache");
}

void make_directory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("cannot create directory", directory.native(), error.value());
}

// The files of a source would be overwritten while they are read.
void refuse_source(const fs::path& output_dir, const fs::path& source) {
  std::error_code ignored;
  if (!fs::equivalent(output_dir, source, ignored)) return;
  raise<ConfigError>("--output_dir '{}' is a source of the merge; choose another directory",
                     output_dir.native());
}

}  // namespace

int merge(const Invocation& invocation) {
  MergeFlags options;
  CLI::App app("merge an adapter into its base model", "tandem merge");
  add_flags(app, options);
  if (!parse_command(app, invocation.words)) return 0;
  DownloadProgress downloads;
  const hub::ModelLocation location =
      hub::resolve_model(options.model, invocation.environment, downloads);
  if (location.adapter.empty()) {
    raise<ConfigError>("{}: found no adapter_config.json, expected an adapter of PEFT",
                       options.model.model_name_or_path);
  }
  refuse_source(options.output_dir, location.adapter);
  refuse_source(options.output_dir, location.model.directory);
  make_directory(options.output_dir);
  const models::MergeReport report =
      models::write_merged_model({.base = location.model.directory,
                                  .adapter = location.adapter,
                                  .config = location.config_directory},
                                 options.output_dir);
  fmt::print("{}: {} with {} adapted matrices and {} parameters that were trained whole\n",
             (options.output_dir / "model.safetensors").native(), location.model.directory.native(),
             report.adapted, report.replaced);
  return 0;
}

}  // namespace tandem::apps
