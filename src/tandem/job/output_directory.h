// Selects the output directory of a job whose pods and restarts name different ones: `--output_dir
// /volume/output_$(date +%Y%m%d_%H%M%S)` differs in every pod.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"

namespace tandem::job {

// The name of a job in every pod and after every restart: TORCHELASTIC_RUN_ID (PET_RDZV_ID), else
// in a Kubernetes pod the name of its host without its numbers ("qa-worker-3", "qa-3" and
// "qa-node-0-3" belong to "qa"). Nothing if neither is set.
std::optional<std::string> job_name(const Environment& environment, std::string_view host_name);

// Returns true if two paths have the same parent and their last names differ only in dates:
// 20260131, 2026-01-31, 31-01-2026, Jan31, each with or without a time (235959, 23-59-59), or the
// seconds since 1970 (date +%s). Other numbers, as in "seed123456", name other jobs.
bool only_dates_differ(const std::filesystem::path& one, const std::filesystem::path& other);

void set_output_dir(Request& request, const std::string& output_dir);

// Rank 0's record of the job's earlier starts, from a file next to output_dir (`.tandem-job-NAME`):
// their output directory and arguments. If tandem run chose a random name, the file is in a folder
// of its agent (TANDEM_JOB_RECORDS).
class OutputDirectory {
 public:
  // Every rank takes rank 0's output_dir into `request`. Rank 0 takes that of an earlier start of
  // the same job if only a date differs. Each change is logged in one line. Collective.
  OutputDirectory(Request& request, const Environment& environment,
                  comm::Communicator& communicator, Console& console);

  // This start continues with the files that an earlier start of the same job left in output_dir.
  // On rank 0.
  bool same_job() const { return same_job_; }
  // The checkpoint was in output_dir before this job's first start and is unchanged since:
  // --overwrite_output_dir does not resume from it, even after a restart. On rank 0.
  bool is_foreign(const std::filesystem::path& checkpoint) const;
  // Records the directory for the next start, once output_dir exists and belongs to this job. On
  // rank 0; a read-only folder is not an error.
  void keep();
  // A pod that restarts within some minutes belongs to the finished job, a later one does not.
  void finish() const { write(true); }

 private:
  void look_back(Request& request, Console& console);
  void write(bool finished) const;

  std::filesystem::path file_;  // empty: nothing is recorded
  std::string output_dir_;
  std::string arguments_;  // all except output_dir, as lines
  bool same_job_ = false;
  std::map<std::string, std::int64_t> foreign_;  // names and modification times of checkpoints
};

}  // namespace tandem::job
