// Arguments of a task's own command line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/data/read_rows.h"
#include "tandem/flags/flag.h"
#include "tandem/tasks/data_source.h"
#include "tandem/tasks/stages.h"

namespace tandem::tasks {

class JobTask;

class TaskArguments {
 public:
  virtual ~TaskArguments() = default;

  // The name of its command: "run_qa".
  virtual std::string_view command() const = 0;
  // The rows of its flags, and the structs that they fill, which are this object's. A row with the
  // name of one that all tasks share takes its place.
  virtual flags::FlagTable flags() const = 0;
  virtual void add_to(flags::ArgumentParts& parts) = 0;
  // Names of the evaluation's metrics, without the prefix "eval_".
  virtual std::vector<std::string> metrics() const = 0;
  // The metric that chooses the best model unless the user names another.
  virtual std::string default_metric() const { return metrics().front(); }
  // As in transformers.
  virtual bool greater_is_better(std::string_view metric) const {
    return !metric.ends_with("loss");
  }
  // Looks for contradictions and for data that a stage needs but no flag names; `evaluation_flag`
  // is the flag that asked for an evaluation. Reads no file. May write a value in another way.
  // Throws ConfigError.
  virtual void check(const Stages& stages, std::string_view evaluation_flag) = 0;
  // The job that the flags describe, after they are read and checked.
  virtual std::unique_ptr<JobTask> make_job() const = 0;
};

// The arguments of a task whose flags fill `Arguments`, a struct that derives from DataSource or is
// one, and whose examples are rows of data files.
template <class Arguments>
class DataTaskArguments : public TaskArguments {
 public:
  DataTaskArguments() = default;
  explicit DataTaskArguments(Arguments arguments) : arguments_(std::move(arguments)) {}

  const Arguments& arguments() const { return arguments_; }

  void add_to(flags::ArgumentParts& parts) override {
    parts.add<DataSource>(arguments_);
    if constexpr (!std::is_same_v<Arguments, DataSource>) parts.add(arguments_);
  }
  void check(const Stages& stages, std::string_view evaluation_flag) override {
    check_data_source(arguments_, stages, evaluation_flag, data::row_file_extensions());
  }

 protected:
  Arguments arguments_;
};

}  // namespace tandem::tasks
