// The rank of this process in its job, read from the launcher's environment. No MPI library is
// involved.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "tandem/core/env.h"

namespace tandem::rendezvous {

inline constexpr int kDefaultMasterPort = 29500;
inline constexpr int kMaxWorldSize = 65536;

// The environment variables that show that another process is a rank of this job.
struct RankVariables {
  std::string rank;  // holds the rank's number; empty: there are no other ranks
  // Variables that are equal in all processes of the job, with this process's values; empty: unset.
  std::map<std::string, std::string> same;
};

struct Identity {
  int rank = 0;
  int world_size = 1;
  // The node as the launcher describes it. comm::Communicator finds out for itself which ranks
  // really share memory.
  int local_rank = 0;
  int local_size = 1;
  std::string source = "single process";  // the launcher whose variables decided
  RankVariables variables;

  // Rank 0's address for the bootstrap. With `pmi_fd` the port is only used if the user chose it
  // (`master_port_given`). Otherwise rank 0 takes a free port and publishes it through the process
  // manager, so that two jobs on one host never compete for the default port.
  std::string master_addr = "127.0.0.1";
  int master_port = kDefaultMasterPort;
  bool master_addr_given = false;
  bool master_port_given = false;
  std::optional<int> pmi_fd;  // Hydra's process manager (PMI-1)
  std::string interface;      // which network interfaces are advertised, as in interfaces.h
  std::string job_token;      // secret of all ranks (TANDEM_JOB_TOKEN); empty: none

  bool distributed() const { return world_size > 1; }
  // The launcher ends all ranks when one exits with an error (mpirun and torchrun do; srun and
  // people do not).
  bool ended_by_launcher = false;
  // All ranks can reach rank 0 through the loopback interface.
  bool loopback() const;
  // A decision to log at start (derived port, ignored variables); may be empty.
  std::string note;
};

// The first launcher whose variables are present decides, in this order:
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (torchrun, by hand); PMI_RANK, PMI_SIZE,
//   MPI_LOCALRANKID, MPI_LOCALNRANKS (Hydra: MPICH, Intel MPI); OMPI_COMM_WORLD_* (Open MPI);
//   MV2_COMM_WORLD_* (MVAPICH2); SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID,
//   SLURM_NTASKS_PER_NODE inside a step that srun started (a batch script, which has SLURM_PROCID
//   too, is one process). srun --mpi=pmi2 counts as Hydra with Slurm's local ranks.
// None: a single process. Throws ConfigError, naming variables and values, when they are
// incomplete, out of range, contradict each other, or leave the address of rank 0 open in a job of
// several nodes.
Identity identify(const Environment& environment);

// The interfaces asked for by TANDEM_IFNAME, CCL_KVS_IFACE or GLOO_SOCKET_IFNAME, the first that is
// set; empty: none.
std::string interface_choice(const Environment& environment);

// The job's secret: TANDEM_JOB_TOKEN, else the content of the file TANDEM_JOB_TOKEN_FILE without
// white space around it; empty if both are unset. Throws ConfigError if the file is empty or has
// more than one line.
std::string job_token_of(const Environment& environment);

// One line for the start-up print: "rank 1 of 4 (Hydra), local 1 of 2, bootstrap at …".
std::string describe(const Identity& identity);

// The first host of a Slurm node list and the number of its hosts: "n[07-09,12],m1" -> {"n07", 5}.
// Throws ConfigError when the list cannot be read.
struct SlurmHosts {
  std::string first;
  int count = 0;
};
SlurmHosts parse_slurm_nodelist(const std::string& list);

}  // namespace tandem::rendezvous
