// Pods of a job, wherever a manifest hides their template, and what makes them fail.
#pragma once

#include <string>
#include <vector>

#include "apps/manifest/finding.h"

namespace tandem::apps::manifest {

struct Pods {
  const YamlNode* spec = nullptr;  // a PodSpec
  std::string path;                // path of the PodSpec
  long count = 1;
  bool computes = true;        // not only a launcher
  std::string main_container;  // the name that the operator looks for; empty: any
};

// The pods that an object makes; those of a file's job, its launcher included.
std::vector<Pods> pods_of(const YamlNode& object);

// Images, resources, volumes, /dev/shm, OMP_NUM_THREADS, where --output_dir lies. `all`: every
// object of the file, for claims.
void check_pods(const Pods& pods, const std::vector<YamlNode>& all, Findings& findings);

}  // namespace tandem::apps::manifest
