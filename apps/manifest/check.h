// `tandem manifest --check`: would this file run a job, and if not, which line is to be changed?
#pragma once

#include <string>

#include "apps/manifest/finding.h"

namespace tandem::apps::manifest {

// What is wrong with the text of a file, by line: YAML, then types (rules.h), then what makes a
// training job fail though Kubernetes takes it: the objects' own rules, and pods (pods.h).
Findings check_text(const std::string& text);

// The rules of one object beyond types. `all`: every object of the file.
void check_object(const YamlNode& object, const std::vector<YamlNode>& all, Findings& findings);

}  // namespace tandem::apps::manifest
