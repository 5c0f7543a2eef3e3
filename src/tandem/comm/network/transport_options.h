// The user's choice of the library that carries messages between ranks: --ddp_backend and oneCCL's
// CCL_ATL_TRANSPORT.
#pragma once

#include <string>
#include <string_view>

#include "tandem/core/env.h"

namespace tandem::comm {

struct TransportOptions {
  // "tcp" (tandem's own), or a plugin: "ofi", "mpich" (the ABI of MPICH, which Intel MPI shares),
  // "openmpi", "gloo".
  std::string name = "tcp";
  std::string plugin_path;     // directories separated by ':', searched first (TANDEM_PLUGIN_PATH)
  std::string mpi_library;     // an MPICH-like library to load instead (CCL_MPI_LIBRARY_PATH)
  std::string interface_name;  // GLOO_SOCKET_IFNAME
  std::string provider;        // FI_PROVIDER; libfabric reads all other FI_* itself

  bool is_plugin() const { return name != "tcp"; }
  bool is_mpi() const { return name == "mpich" || name == "openmpi"; }
};

// The transport of a backend "ccl", "mpi" or "gloo".
//   ccl: CCL_ATL_TRANSPORT=ofi, mpi, tcp; unset: tcp.
//   mpi: the MPI whose launcher started this process, found in the launcher's variables.
// Throws ConfigError for an unknown name, or for an MPI in a job of several ranks that no MPI
// launcher started.
TransportOptions choose_transport(std::string_view backend, const Environment& environment,
                                  bool distributed);

}  // namespace tandem::comm
