// `tandem manifest`: Kubernetes manifests from a job's command line, and the faults of manifests
// written by hand.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/manifest/check.h"
#include "apps/manifest/write.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::apps {
namespace {

constexpr std::uintmax_t kLargestFile = 4 << 20;  // API servers take 1.5 MB

struct Options {
  manifest::ManifestJob job;
  std::vector<std::string> check;
};

std::string help_of_kinds() {
  std::string text =
      "Prints the manifest of a job whose command stands behind '--', or of what it needs; with "
      "--check it lists the faults in files, by line, and exits with 1. Kinds:";
  for (const manifest::ManifestKind& kind : manifest::manifest_kinds())
    text += fmt::format("\n  {:<15}{}", kind.name, kind.summary);
  return text;
}

void add_volume_options(CLI::App& app, manifest::ManifestJob& job) {
  app.add_option("--pvc", job.claim, "claim of the volume for data, caches and checkpoints");
  app.add_option("--mount", job.mount, "where the volume is mounted")->capture_default_str();
  app.add_option("--size", job.size, "of the volume, for pvc")->capture_default_str();
  app.add_option("--storage_class", job.storage_class,
                 "for pvc: a class whose volumes many nodes can write to, as those of NFS");
  app.add_option("--bucket", job.bucket,
                 "for pvc: a bucket of an object store, as a volume of its own");
  app.add_option("--csi_driver", job.csi_driver, "for pvc --bucket: the driver that mounts it")
      ->capture_default_str();
}

void add_pod_options(CLI::App& app, manifest::ManifestJob& job) {
  app.add_option("--image", job.image, "the image of deploy/Dockerfile");
  app.add_option("--cpus", job.cpus, "CPUs of a pod, requested and at most")->capture_default_str();
  app.add_option("--memory", job.memory, "memory of a pod, requested and at most")
      ->capture_default_str();
  app.add_option("--env", job.environment, "NAME=VALUE; may be repeated")->allow_extra_args(false);
  app.add_option("--node_selector", job.node_selector, "LABEL=VALUE of nodes; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--token_secret", job.token_secret,
                 "Secret with the job token, as made by tandem manifest secret");
}

void add_job_options(CLI::App& app, manifest::ManifestJob& job) {
  app.add_option("--name", job.name, "of the job")->capture_default_str();
  app.add_option("--namespace", job.space, "of the objects (default: the context's)");
  app.add_option("--replicas", job.replicas, "pods; of an elastic job the most")
      ->capture_default_str()
      ->check(whole_number_in(1, 4096));
  app.add_option("--min_replicas", job.min_replicas, "pods of an elastic job, at least")
      ->capture_default_str()
      ->check(whole_number_in(1, 4096));
  app.add_option("--max_restarts", job.max_restarts, "failures that are made good")
      ->capture_default_str()
      ->check(whole_number_in(0, 1000000));
  app.add_option("--nproc_per_node", job.processes,
                 "processes of a pod; auto: one for each memory domain (mpijob: 1)")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto"}) | whole_number_in(1, 4096));
  app.add_option("--queue", job.queue, "Kueue's queue, for job and jobset");
  app.add_option("--implementation", job.implementation, "mpijob: which mpirun's host file it gets")
      ->capture_default_str()
      ->check(CLI::IsMember({"MPICH", "Intel"}));
}

// False: help was printed.
bool parse_options(std::vector<std::string> words, Options& options) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes != words.end()) options.job.command.assign(dashes + 1, words.end());
  words.erase(dashes, words.end());
  std::vector<std::string> kinds;
  for (const manifest::ManifestKind& kind : manifest::manifest_kinds())
    kinds.emplace_back(kind.name);
  CLI::App app(help_of_kinds(), "tandem manifest");
  auto* kind =
      app.add_option("kind", options.job.kind, "what to make")->check(CLI::IsMember(kinds));
  auto* check = app.add_option("--check", options.check, "files to check; -: standard input");
  check->excludes(kind);
  add_job_options(app, options.job);
  add_pod_options(app, options.job);
  add_volume_options(app, options.job);
  if (!parse_command(app, words)) return false;
  if (options.check.empty() && kind->count() == 0)
    throw ConfigError(fmt::format("missing kind of manifest; expected one of {}, or --check FILE",
                                  fmt::join(kinds, ", ")),
                      true);
  if (options.job.min_replicas > options.job.replicas)
    throw ConfigError(fmt::format("--min_replicas {} is more than --replicas {}",
                                  options.job.min_replicas, options.job.replicas),
                      true);
  return true;
}

std::string read_manifest(const std::string& name) {
  if (name == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::error_code error;
  const auto size = std::filesystem::file_size(name, error);
  if (!error && size > kLargestFile)
    raise<DataError>("'{}' has {} bytes, far more than a manifest", name, size);
  return read_file(name);
}

int check_files(const std::vector<std::string>& names) {
  std::size_t count = 0;
  for (const std::string& name : names) {
    const manifest::Findings findings = manifest::check_text(read_manifest(name));
    for (const manifest::Finding& finding : findings) {
      fmt::print("{}:{}: {}{}; fix: {}\n", name, finding.line,
                 finding.field.empty() ? "" : finding.field + ": ", finding.problem, finding.fix);
    }
    if (findings.empty()) fmt::print("{}: no problems found\n", name);
    count += findings.size();
  }
  return count == 0 ? 0 : 1;
}

}  // namespace

int run_manifest(const Invocation& invocation) {
  Options options;
  if (!parse_options(invocation.words, options)) return 0;
  if (!options.check.empty()) return check_files(options.check);
  fmt::print("{}", manifest::write_manifest(options.job));
  return 0;
}

}  // namespace tandem::apps
