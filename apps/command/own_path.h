// Where the program that runs is.
#pragma once

#include <string>

namespace tandem::apps {

// Its path; "tandem" where the system does not tell.
std::string own_path();

}  // namespace tandem::apps
