// Callbacks that keep what must outlive the training process of an elastic job (docs/elastic.md).
// The weights are in the node's memory; the callbacks keep the rest: counters, the log, the
// position of the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/error.h"

namespace tandem::trainer {

// All ranks have agreed to meet again in another view, after a step that is complete.
class ViewChanges : public Error {
 public:
  using Error::Error;
};

// This class itself has the callbacks of a job that ends with its processes: nothing is kept.
class ElasticCallbacks {
 public:
  virtual ~ElasticCallbacks() = default;
  // Whether the job outlives this process.
  virtual bool is_elastic() const { return false; }
  // Step `step` is applied on this node; `record` is that of the step.
  virtual void step_applied(std::uint64_t /*step*/, const std::vector<double>& /*record*/) {}
  // Trainer::progress() has changed by more than applied steps. Elastic jobs only.
  virtual void progress(std::string /*text*/) {}
  // Whether this rank wants all to meet again after this step.
  virtual bool change_asked() { return false; }
  // There are too few nodes to train: the job is saved, and all meet again when there are more.
  virtual bool paused() { return false; }
  // Whether this rank has to leave at once: computations throw Interrupted because of that, and not
  // because a person wants the job to stop.
  virtual bool leave_ordered() { return false; }
};

// The state from which a job continues: the last argument of ElasticCallbacks::progress(), and the
// records of the steps since.
struct Continuation {
  std::string progress;
  std::vector<std::vector<double>> records;
};

}  // namespace tandem::trainer
