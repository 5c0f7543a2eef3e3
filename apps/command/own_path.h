// Where the program that runs is.
#pragma once

#include <string>

#include "tandem/core/env.h"

namespace tandem::apps {

// Its path; "tandem" if the system does not report it.
std::string own_path();

// How a person starts it: "tandem" where PATH leads to this program, its path otherwise.
std::string shown_program(const Environment& environment);

}  // namespace tandem::apps
