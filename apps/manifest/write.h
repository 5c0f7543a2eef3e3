// Manifests from a job's own command line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::apps::manifest {

struct ManifestJob {
  std::string kind = "pytorchjob";
  std::string name = "tandem";
  std::string space;  // namespace
  std::string image;
  int replicas = 4;
  int min_replicas = 1;
  int max_restarts = 10;
  std::string processes = "auto";  // processes of a pod
  std::string cpus = "8";
  std::string memory = "32Gi";
  std::string claim;  // claim of the volume
  std::string mount = "/tmp/pvc-mount";
  std::string size = "100Gi";
  std::string storage_class;
  std::string bucket;  // bucket of an object store, as a volume
  std::string csi_driver = "gcsfuse.csi.storage.gke.io";
  std::string token_secret;
  std::string queue;  // queue of Kueue
  std::string implementation = "MPICH";
  std::vector<std::string> environment;    // NAME=VALUE
  std::vector<std::string> node_selector;  // LABEL=VALUE
  std::vector<std::string> command;        // run_qa … or any program
};

struct ManifestKind {
  std::string_view name;
  std::string_view summary;
  bool runs_job;  // needs an image, a claim and a command
  std::string (*write)(const ManifestJob&);
};

// In the order of the help.
std::span<const ManifestKind> manifest_kinds();

// One or several documents of YAML, which check.h finds nothing wrong with. Throws ConfigError when
// something is missing.
std::string write_manifest(const ManifestJob& job);

}  // namespace tandem::apps::manifest
