// The state of a job as seen by its agent on this host: the answer to `tandem status`, and the line
// that the agent prints regularly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::launch {

struct JobStatus {
  struct WorkerStatus {
    int worker = 0;     // its number on this host
    int rank = -1;      // in the view; -1: it is not computing
    int pid = 0;        // 0: no process
    std::string doing;  // "computes", "starts", "waits", "is done", "is drained", "is not running"
  };
  std::string job;      // --rdzv-id
  std::string host;     // host of this agent
  int agent = 0;        // its process
  std::string address;  // "host:port" for the other hosts; empty: the job is on one host
  std::string program;
  std::uint64_t view = 0;   // 0: none yet
  std::uint64_t step = 0;   // the last step known to be applied
  int losses = 0;           // dead workers of this host so far
  int restarts = 0;         // restarted workers of this host
  int nodes = 0;            // agents in the view
  int ranks = 0;            // ranks of the view, on all nodes
  double seconds_lost = 0;  // elastic::Node::seconds_lost()
  std::optional<double> seconds_since_step;
  bool ending = false;   // the job, or this node's part in it
  std::string measured;  // by the first worker, in Prometheus' text form; for programs only
  std::vector<WorkerStatus> members;

  int num_computing() const;
};

std::string to_json(const JobStatus& status);
// Throws DataError. Control characters are removed from texts.
JobStatus job_status_from(const std::string& json);

// "view 3: 2 of 3 workers compute, step 58 is applied, 1 worker lost so far"; on several nodes
// "view 3 of 4 ranks on 2 nodes: 2 of 3 workers here compute, ..."
std::string progress_line(const JobStatus& status);
// The same with the job's name and a line for each worker.
std::string for_people(const JobStatus& status);

}  // namespace tandem::launch
