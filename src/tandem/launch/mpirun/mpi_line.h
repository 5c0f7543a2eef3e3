// The command line of Hydra (mpiexec of MPICH and Intel MPI) as a table: the flags of `tandem
// mpirun`.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/launch/mpirun/host_file.h"

namespace tandem::launch {

using EnvironmentMap = std::map<std::string, std::string, std::less<>>;

// The variables of mpirun's environment that a rank gets (-genvall, -genvnone, -genvlist), and
// those added to them (-genv).
struct EnvironmentRule {
  enum class Base { kAll, kNone, kListed };
  Base base = Base::kAll;
  std::vector<std::string> listed;
  std::vector<std::pair<std::string, std::string>> set;

  EnvironmentMap of(const EnvironmentMap& inherited) const;
};

// One program of the job; several are separated by ':'.
struct MpiBlock {
  std::optional<int> count;  // -n; empty: one for each slot of the hosts
  std::vector<std::string> command;
  std::optional<EnvironmentRule> environment;  // -env…; its base replaces the job's
  std::string directory;                       // -wdir; empty: mpirun's working directory
  std::string host;                            // -host; empty: any
};

struct MpiLine {
  std::string host_file;             // -f
  std::vector<HostfileEntry> hosts;  // -hosts
  std::optional<int> ranks_per_host;
  EnvironmentRule environment;
  bool prefix_ranks = false;   // -l
  std::string prefix_pattern;  // -prepend-pattern
  std::string out_pattern, err_pattern;
  std::string bind_to, map_by;
  std::string interface;  // -iface
  std::string launcher = "ssh";
  std::string launcher_program;             // empty: ssh
  std::vector<std::string> launcher_words;  // its further options
  bool auto_cleanup = true;
  bool print_exit_codes = false;
  bool verbose = false;
  int input_rank = 0;  // rank that reads mpirun's stdin; -1: none
  int timeout_s = 0;   // MPIEXEC_TIMEOUT; 0: none
  std::optional<int> universe_size;
  std::vector<MpiBlock> blocks;
  std::vector<std::string> notes;  // accepted flags without effect: a line each
};

struct MpiFlag {
  std::string_view names;  // "n|np": typed with one dash or two
  std::string_view value;  // placeholder; empty: a switch
  std::string_view help;
  // Throws ConfigError without the flag's name.
  void (*apply)(MpiLine& line, const std::string& value);
};

std::span<const MpiFlag> mpi_flags();

// Reads the words after `tandem mpirun`: -flag value, --flag value, -flag=value, `-genv A B` and
// `-genv A=B`, blocks separated by ":", -configfile. HYDRA_HOST_FILE and others are used if the
// flag is missing. Throws ConfigError (usage) for errors.
MpiLine parse_mpi_line(const std::vector<std::string>& words, const Environment& environment);

// Returns true if all of its programs are tandem's own jobs: `tandem` and one of these commands.
bool is_own_job(const MpiLine& line, const std::vector<std::string>& job_commands);

// Returns true if the processes of tandem's own job are proxies for restartable workers
// (proxy.h), unless the user opted out. `inherited`: mpirun's environment.
bool may_be_elastic(const MpiLine& line, const EnvironmentMap& inherited);

}  // namespace tandem::launch
