// Where a job writes when its pods and their restarts do not name the same place:
// `--output_dir /volume/output_$(date +%Y%m%d_%H%M%S)` is another one in every pod.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/comm/api/communicator.h"
#include "tandem/core/env.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"

namespace tandem::job {

// What a job is called in every pod and after every restart: TORCHELASTIC_RUN_ID (PET_RDZV_ID),
// else in a Kubernetes pod the name of its host without what numbers it ("qa-worker-3", "qa-3" and
// "qa-node-0-3" belong to "qa"). Nothing where neither says it.
std::optional<std::string> job_name(const Environment& environment, std::string_view host_name);

// Whether two paths are of one folder and their last names differ in nothing but dates: 20260131,
// 2026-01-31, 31-01-2026, Jan31, each with or without a time (235959, 23-59-59), or the seconds
// since 1970 (date +%s). Other numbers, as in "seed123456", name other jobs.
bool only_dates_differ(const std::filesystem::path& one, const std::filesystem::path& other);

void set_output_dir(Request& request, const std::string& output_dir);

// What rank 0 knows of the job's earlier starts, from a file beside output_dir
// (`.tandem-job-NAME`): where it writes and what it was asked for. Where tandem run drew the name
// at random the file lies in a folder that goes with its agent (TANDEM_JOB_RECORDS).
class OutputPlace {
 public:
  // Every rank takes rank 0's output_dir into `request`; rank 0 takes that of an earlier start of
  // the same job, where only a date differs. Each change is told in one line. Collective.
  OutputPlace(Request& request, const Environment& environment, comm::Communicator& communicator,
              Console& console);

  // This start goes on with what an earlier one of the same job left in output_dir. Of rank 0.
  bool same_job() const { return same_job_; }
  // The checkpoint was in output_dir before this job's first start, and nobody has written it
  // since: --overwrite_output_dir does not go on from it, in a restart neither. Of rank 0.
  bool is_foreign(const std::filesystem::path& checkpoint) const;
  // Keeps the place for the next start, once output_dir is there and this job's. Of rank 0; a
  // folder that cannot be written is no error.
  void keep();
  // A pod that is started again within some minutes belongs to the finished job, a later one does
  // not.
  void finish() const { write(true); }

 private:
  void look_back(Request& request, Console& console);
  void write(bool finished) const;

  std::filesystem::path file_;  // empty: nothing is kept
  std::string output_dir_;
  std::string arguments_;  // all but output_dir, as lines
  bool same_job_ = false;
  std::map<std::string, std::int64_t> foreign_;  // names of checkpoints, and when they were changed
};

}  // namespace tandem::job
