// The values of a manifest and what is wrong with them.
#pragma once

#include "tandem/formats/yaml.h"

namespace tandem::apps::manifest {

using formats::Field;
using formats::Finding;
using formats::Findings;
using formats::YamlNode;

}  // namespace tandem::apps::manifest
