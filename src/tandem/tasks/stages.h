// Which stages a job has.
#pragma once

namespace tandem::tasks {

// A job reads the data of these only.
struct Stages {
  bool train = false;
  bool eval = false;
  bool predict = false;
};

}  // namespace tandem::tasks
