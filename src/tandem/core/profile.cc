#include "tandem/core/profile.h"

#include "tandem/core/error.h"

namespace tandem {

Profile::Duration Profile::total() const {
  Duration sum{};
  for (const Stage& stage : stages()) sum += stage.time;
  return sum;
}

Profile::Duration Profile::time_of(std::string_view name) const {
  Duration sum{};
  for (const Stage& stage : stages()) {
    if (stage.name == name) sum += stage.time;
  }
  return sum;
}

// A stage inside a stage would be counted twice.
void Profile::begin() {
  TANDEM_CHECK(!running_, "a stage began inside another one");
  running_ = true;
}

void Profile::end(std::string_view name, std::string_view part, Duration time) {
  running_ = false;
  for (Stage& stage : std::span(stages_).first(size_)) {
    if (stage.name != name || stage.part != part) continue;
    stage.time += time;
    ++stage.calls;
    return;
  }
  TANDEM_CHECK(size_ < kMaxStages, "no room for the stage {} {}", name, part);
  stages_[size_++] = {name, part, time, 1};
}

}  // namespace tandem
