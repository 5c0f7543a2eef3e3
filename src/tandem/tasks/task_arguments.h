// What the command line of a task has of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/flags/flag.h"
#include "tandem/tasks/stages.h"

namespace tandem::tasks {

class TaskArguments {
 public:
  virtual ~TaskArguments() = default;

  // The name of its command: "run_qa".
  virtual std::string_view command() const = 0;
  // The rows of its flags, and the structs that they fill. A row with the name of one that all
  // tasks share takes its place.
  virtual flags::FlagTable flags() const = 0;
  virtual void add_to(flags::ArgumentParts& parts) = 0;
  // What its evaluation measures, without the prefix "eval_".
  virtual std::vector<std::string> metrics() const = 0;
  // The one that the best model is chosen by where nobody names another.
  virtual std::string default_metric() const = 0;
  // As in transformers.
  virtual bool greater_is_better(std::string_view metric) const {
    return !metric.ends_with("loss");
  }
  // Looks for contradictions and for data that a stage needs and nobody named; `evaluation_flag` is
  // the flag that asked for an evaluation. Reads no file. Throws ConfigError.
  virtual void check(const Stages& stages, std::string_view evaluation_flag) const = 0;
};

}  // namespace tandem::tasks
