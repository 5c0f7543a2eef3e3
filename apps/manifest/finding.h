// What is wrong with a manifest.
#pragma once

#include <string>
#include <vector>

namespace tandem::apps::manifest {

struct Finding {
  int line = 0;         // of the file, from 1
  std::string field;    // "spec.elasticPolicy.minReplicas"; empty: of the file
  std::string problem;  // what was found, and what was expected
  std::string fix;
};

using Findings = std::vector<Finding>;

}  // namespace tandem::apps::manifest
