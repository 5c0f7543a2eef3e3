// A job whose ranks die, leave and join while it runs (docs/elastic.md), from its workers' side:
// each prepares itself alone, and computes in one view after another.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/elastic/worker/agent_channel.h"
#include "tandem/job/console.h"
#include "tandem/job/world.h"
#include "tandem/trainer/elastic_callbacks.h"

namespace tandem::job {

// The stages of a job, in this order; its progress contains the number of completed stages.
enum class Stage { kTrain, kEvaluate, kPredict, kEnd };

using Results = std::vector<std::pair<std::string, nlohmann::ordered_json>>;

// Decisions that the first worker of a job makes for all.
struct Decision {
  std::string output_dir;
  std::string resume;  // the checkpoint to resume from, or empty
  int shards = 1;      // logical shards, unless a flag sets them
};
std::string to_text(const Decision& decision);
Decision decision_from(const std::string& text);  // Throws CommError.

// Progress of an elastic job.
struct Progress {
  Stage stage = Stage::kTrain;               // first incomplete stage
  std::string trainer;                       // Trainer::progress(), or empty
  Results results;                           // results of the completed stages
  std::vector<std::vector<double>> records;  // records of steps since `trainer`
};

// Callbacks that keep what must outlive the process of an elastic job. This class itself has those
// of a job that ends with its processes.
class JobCallbacks : public trainer::ElasticCallbacks {
 public:
  // First incomplete stage.
  virtual Stage stage() const { return Stage::kTrain; }
  virtual void add_result(std::string /*stage*/, const nlohmann::ordered_json& /*metrics*/) {}
  virtual void stage_is_over(Stage /*stage*/) {}
};

// Reports the job's progress to the agent. Only the first worker of a node does.
class ViewCallbacks final : public JobCallbacks {
 public:
  ViewCallbacks(elastic::AgentChannel& channel, const elastic::Assignment& assignment,
                const Progress& progress)
      : channel_(channel),
        view_(assignment.view),
        logs_(assignment.briefing.keeps),
        paused_(assignment.briefing.paused),
        repeats_(!progress.trainer.empty()),
        progress_(progress) {}

  bool is_elastic() const override { return true; }
  void step_applied(std::uint64_t step, const std::vector<double>& record) override;
  void progress(std::string text) override;
  bool change_asked() override { return channel_.change_asked(); }
  bool paused() override { return paused_; }
  bool leave_ordered() override { return channel_.stop_ordered().load(std::memory_order_acquire); }

  // Returns true if reports are accepted; then lines of the log may be passed to it: they are
  // printed with the next progress report.
  bool logs() const { return logs_; }
  void print(const std::string& line) { lines_ += line; }

  Stage stage() const override { return progress_.stage; }
  const Results& results() const { return progress_.results; }
  void add_result(std::string stage, const nlohmann::ordered_json& metrics) override;
  void stage_is_over(Stage stage) override;

 private:
  void send_progress(bool advanced);

  elastic::AgentChannel& channel_;
  const std::uint64_t view_;
  const bool logs_;
  const bool paused_;
  bool repeats_;  // the trainer first reports where it resumes
  Progress progress_;
  Results of_this_stage_;
  std::string lines_;
};

// During its lifetime the agent prints the log, together with the progress, so that an entry is
// printed once for any death. Lines not reported when the view ends are repeated in the next view.
class DivertedLog {
 public:
  DivertedLog(Console& console, ViewCallbacks& callbacks) : console_(console) {
    if (callbacks.logs())
      console_.divert_log([&](const std::string& line) { callbacks.print(line); });
  }
  ~DivertedLog() { console_.divert_log({}); }
  DivertedLog(const DivertedLog&) = delete;
  DivertedLog& operator=(const DivertedLog&) = delete;

 private:
  Console& console_;
};

// The content of this worker's ready message: `lines` are the command line and all inputs.
elastic::AgentChannel::Ready ready_to_compute(std::uint64_t step, int shards, std::string kernels,
                                              const std::string& lines);

// Brings all ranks of a view to the newest step that one of them has
// (GradientEngine::synchronize_state), with the job's progress at that step. A node keeps both or
// neither, for any death meanwhile. `learner`: the state that the node's leader has learned, or
// null. Collective, after finish_update(). Throws CommError.
struct SyncedProgress {
  Progress progress;
  bool moved = false;  // weights were sent
};
SyncedProgress synchronize_state(elastic::AgentChannel& channel,
                                 const elastic::Assignment& assignment,
                                 const dist::ModelState& model, dist::GradientEngine& gradients,
                                 comm::Communicator& communicator, dist::LearnedState* learner);

}  // namespace tandem::job
