// `tandem manifest --check`: would this file run a job, and if not, which line is to be changed?
#pragma once

#include <string>

#include "apps/manifest/finding.h"

namespace tandem::apps::manifest {

// Errors in the text of a file, by line: YAML, then settings that Kubernetes accepts although a
// training job then fails: those of the objects, and those of their pods (pods.h). Fields and types
// are left to the API server, which reports them.
Findings check_text(const std::string& text);

// The settings of one object. `all`: every object of the file.
void check_object(const YamlNode& object, const std::vector<YamlNode>& all, Findings& findings);

}  // namespace tandem::apps::manifest
