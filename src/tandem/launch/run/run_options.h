// The options of `tandem run`: torchrun's options under torchrun's names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/log_line.h"
#include "tandem/launch/process/placement.h"

namespace tandem::launch {

enum class Backend { kStatic, kC10d };

// Which of a worker's streams something applies to, as torchrun counts: 1 stdout, 2 stderr, 3 both.
struct Streams {
  bool out = false;
  bool err = false;
};

// One value for all workers of the node, or one for each local rank (missing ones: neither).
struct StreamChoice {
  Streams all;
  std::map<int, Streams> by_local_rank;
  bool each = false;  // by_local_rank counts
  Streams of(int local_rank) const;
};

struct RunOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  std::string nproc_per_node = "1";  // a number, auto or cpu
  Backend backend = Backend::kStatic;
  std::string rdzv_endpoint;  // "host:port", may be empty
  std::string rdzv_id = "none";
  std::map<std::string, std::string> rdzv_conf;
  bool standalone = false;
  int max_restarts = 0;
  bool max_restarts_given = false;
  double monitor_interval = 0.1;  // seconds
  std::string role = "default";
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  LogFormat log_format = LogFormat::kText;
  std::string log_dir;  // empty: a folder for temporary files
  StreamChoice redirects;
  StreamChoice tee;
  std::string log_line_prefix_template;  // empty: torchrun's default
  std::optional<std::vector<int>> local_ranks_filter;
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;
  std::string local_addr;
  Binding binding = Binding::kDefault;
  std::vector<int> signals;  // forwarded to the workers
  std::string signal_names;  // the same as text
  int shutdown_timeout_s = 30;
  bool virtual_local_rank = false;

  std::string script;
  std::vector<std::string> script_arguments;

  // Flags that were accepted without effect, or corrected: one line each.
  std::vector<std::string> notes;
};

}  // namespace tandem::launch
