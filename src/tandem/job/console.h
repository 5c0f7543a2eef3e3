// Output of a job for users. The library prints nothing itself.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tandem/core/log_line.h"
#include "tandem/tasks/job_task.h"
#include "tandem/trainer/observer.h"

namespace tandem::job {

// Selection of the output that this process shows.
struct ConsoleOptions {
  bool main_process =
      true;  // one-time messages belong to the main process: progress, log dicts, tables, facts,
             // notes and warnings
  bool details = false;            // --log_level debug: details for the search for a cause
  bool library_lines = true;       // INFO lines of the library
  bool only_main_process = false;  // INFO lines only on the present main process
  bool progress_bars = true;       // false (--disable_tqdm): no progress at all, only log dicts
  LogFormat format = LogFormat::kText;
  int rank = 0;           // shown in JSON lines
  double peak_flops = 0;  // speed of this rank's threads, measured at start; 0: unknown
  int world_size = 1;
};

// Used by the thread that runs the job.
class Console : public trainer::Observer, public tasks::StartLog {
 public:
  // A line of the script: "*** Evaluate ***". INFO is the main process's.
  virtual void script_line(std::string_view level, std::string_view text) = 0;
  // A line of the library.
  virtual void library_line(std::string_view level, std::string_view source,
                            std::string_view text) = 0;
  // A command to paste: one line, however long.
  virtual void command(std::string_view topic, std::string_view text) = 0;
  // "***** train metrics *****" and the values.
  virtual void metrics_table(std::string_view split, const nlohmann::ordered_json& metrics) = 0;
  // FLOP/s of this rank's threads, the reference for progress.
  virtual void set_peak_flops(double flops) = 0;
  // Sets whether this process is the main one from now on; in an elastic job this may change.
  virtual void set_main_process(bool main) = 0;
  // Passes lines of the log to `to` instead of printing them; an empty function ends that.
  virtual void divert_log(std::function<void(std::string line)> to) = 0;
  // About the whole job: all ranks have it, and the main process prints it.
  void warning(std::string_view text) override = 0;
  // About one host, which the text names.
  virtual void warning_of_host(std::string_view text) = 0;
};

}  // namespace tandem::job
