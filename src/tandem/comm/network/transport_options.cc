#include "tandem/comm/network/transport_options.h"

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

// An MPI library finds its ranks through its own launcher; under another launcher every process
// would be alone.
std::string mpi_of_launcher(const Environment& environment, std::string_view asked_by) {
  if (environment.get("OMPI_COMM_WORLD_SIZE")) return "openmpi";
  if (environment.get("PMI_SIZE") || environment.get("MV2_COMM_WORLD_SIZE")) return "mpich";
  if (environment.get("SLURM_PROCID")) {
    const std::string type = environment.get("SLURM_MPI_TYPE").value_or("");
    return type.starts_with("pmix") ? "openmpi" : "mpich";
  }
  raise<ConfigError>(
      "{} needs ranks that were started by an MPI launcher: found none of PMI_SIZE (mpirun of "
      "MPICH or Intel MPI), OMPI_COMM_WORLD_SIZE (mpirun of Open MPI), SLURM_PROCID (srun); start "
      "the job with mpirun, or use the backend ccl without CCL_ATL_TRANSPORT",
      asked_by);
}

}  // namespace

TransportOptions choose_transport(std::string_view backend, const Environment& environment,
                                  bool distributed) {
  TransportOptions options;
  options.plugin_path = environment.get("TANDEM_PLUGIN_PATH").value_or("");
  options.mpi_library = environment.get("CCL_MPI_LIBRARY_PATH").value_or("");
  options.interface_name = environment.get("GLOO_SOCKET_IFNAME").value_or("");
  options.provider = environment.get("FI_PROVIDER").value_or("");
  const std::string transport =
      backend == "ccl" ? environment.get("CCL_ATL_TRANSPORT").value_or("tcp") : "";
  if (backend == "gloo") {
    options.name = "gloo";
  } else if (backend == "mpi" || transport == "mpi") {
    const auto* asked_by =
        backend == "mpi" ? "the communication backend mpi" : "CCL_ATL_TRANSPORT=mpi";
    if (distributed) options.name = mpi_of_launcher(environment, asked_by);
  } else if (transport == "ofi" || transport == "tcp") {
    options.name = transport;
  } else if (backend == "ccl") {
    raise<ConfigError>(
        "the environment variable CCL_ATL_TRANSPORT is '{}', expected ofi (libfabric), mpi, or tcp "
        "(tandem's own, the default)",
        transport);
  } else {
    raise<ConfigError>("no communication backend '{}': there are ccl, mpi and gloo", backend);
  }
  return options;
}

}  // namespace tandem::comm
