// Which stages a job has.
#pragma once

namespace tandem::tasks {

// A job reads only the data of its stages.
struct Stages {
  bool train = false;
  bool eval = false;
  bool predict = false;
};

}  // namespace tandem::tasks
