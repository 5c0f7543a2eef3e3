// Reports of a run in addition to its console: TensorBoard events, report.html, and the model card
// README.md.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/report/html_report.h"
#include "tandem/report/speed_record.h"
#include "tandem/report/tensorboard.h"
#include "tandem/trainer/observer_list.h"
#include "tandem/trainer/trainer_state.h"

namespace tandem::job {

class RunReports {
 public:
  struct Parts {
    const Request& request;
    const tasks::JobTask& task;
    const Environment& environment;
    bool main_process = true;  // other processes write nothing
    int world_size = 1;
    std::string model_config_json;
    std::vector<report::Fact> machine;
    std::chrono::system_clock::time_point started;  // start of the whole job
    Console& console;
    // Receive the console's events, the second only on the main process.
    trainer::Observer* watcher = nullptr;
    trainer::Observer* main_watcher = nullptr;
  };
  // Objects referred to by `parts` must outlive this.
  explicit RunReports(Parts parts);

  // Observers of the trainer: the console, and the reports.
  trainer::Observer& observer() { return observers_; }
  bool is_main() const { return parts_.main_process; }
  // The metrics of a completed stage: "train", "eval", "predict".
  void add_results(std::string stage, const nlohmann::ordered_json& metrics);
  // Writes report.html, report.json and README.md into output_dir.
  void write(const trainer::TrainerState& state, std::vector<trainer::StepPoint> steps) const;

 private:
  std::string model_card(const trainer::TrainerState& state) const;
  std::vector<report::Fact> headline() const;

  Parts parts_;
  trainer::ObserverList observers_;
  report::SpeedRecord speed_;
  std::unique_ptr<report::TensorBoardObserver> tensorboard_;
  std::vector<std::pair<std::string, nlohmann::ordered_json>> results_;
};

}  // namespace tandem::job
