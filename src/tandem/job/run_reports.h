// Reports of a run in addition to its console: TensorBoard events, report.html, and the model card
// README.md.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/job/training_run.h"
#include "tandem/report/html_report.h"
#include "tandem/report/speed_record.h"
#include "tandem/report/tensorboard.h"
#include "tandem/trainer/observer_list.h"
#include "tandem/trainer/trainer_state.h"

namespace tandem::job {

class RunReports {
 public:
  // The reports of the ranks of `communicator`; only the main process writes. `run` must outlive
  // this, `communicator` need not. Collective.
  RunReports(const TrainingRun& run, comm::Communicator& communicator);

  // Observers of the trainer: the console, and the reports.
  trainer::Observer& observer() { return observers_; }
  bool is_main() const { return main_process_; }
  // The metrics of a completed stage: "train", "eval", "predict".
  void add_results(std::string stage, const nlohmann::ordered_json& metrics);
  // Writes report.html, report.json and README.md into output_dir.
  void write(const trainer::TrainerState& state, std::vector<trainer::StepPoint> steps) const;

 private:
  std::string model_card(const trainer::TrainerState& state) const;
  std::vector<report::Fact> headline() const;

  const TrainingRun& run_;
  bool main_process_;
  int world_size_;
  std::vector<report::Fact> machine_;
  trainer::ObserverList observers_;
  report::SpeedRecord speed_;
  std::unique_ptr<report::TensorBoardObserver> tensorboard_;
  std::vector<std::pair<std::string, nlohmann::ordered_json>> results_;
};

}  // namespace tandem::job
