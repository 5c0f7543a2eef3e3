// Where a job stands, as its agent on this host sees it: the answer to `tandem status`, and the
// line that the agent prints now and then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::launch {

struct JobStatus {
  struct Member {
    int worker = 0;     // its number on this host
    int rank = -1;      // in the view; -1: it does not compute now
    int pid = 0;        // 0: no process
    std::string doing;  // "computes", "starts", "waits", "is done", "is drained", "is not running"
  };
  std::string job;      // --rdzv-id
  std::string host;     // of this agent
  int agent = 0;        // its process
  std::string address;  // "host:port", where others reach it; empty: the job is on one host
  std::string program;
  std::uint64_t view = 0;   // 0: there has been none
  std::uint64_t step = 0;   // the last one that is known to be applied
  int losses = 0;           // workers of this host that died, so far
  int restarts = 0;         // workers that were started again here
  int nodes = 0;            // of the view: agents that take part
  int ranks = 0;            // of the view, on all nodes
  double seconds_lost = 0;  // elastic::Node::seconds_lost()
  std::optional<double> seconds_since_step;
  bool ending = false;   // the job, or this node's part in it
  std::string measured;  // by the first worker, in Prometheus' text form; for programs only
  std::vector<Member> members;

  int num_computing() const;
};

std::string to_json(const JobStatus& status);
// Throws DataError. Texts come without characters that a terminal would obey.
JobStatus job_status_from(const std::string& json);

// "view 3: 2 of 3 workers compute, step 58 is applied, 1 worker lost so far"; on several nodes
// "view 3 of 4 ranks on 2 nodes: 2 of 3 workers here compute, ..."
std::string progress_line(const JobStatus& status);
// The same with the job's name and a line for each worker.
std::string for_people(const JobStatus& status);

}  // namespace tandem::launch
