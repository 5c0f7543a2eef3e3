// A condition of a rank's thread or process, whose failure ends it; GoogleTest's assertions are for
// the test's own thread.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem::testing {

inline void require(bool condition, std::string_view what) {
  if (!condition) throw std::runtime_error(std::string(what));
}

}  // namespace tandem::testing
