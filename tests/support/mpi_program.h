// A program of MPI, as in MPICH's examples (cpi.c): computes pi on all ranks and prints it, or
// fails in one of several ways.
#pragma once

#include <string>

#include "support/process.h"
#include "tandem/core/file.h"

namespace tandem::testing {

// MPI_Finalize of Debian's MPICH closes each connection and then waits in a barrier that moves no
// bytes. Over UCX's TCP a rank may wait forever for another one that is in this barrier already,
// under MPICH's own mpiexec as well (openucx/ucx#2254). So the program has its own
// ucp_disconnect_nb, found before UCX's: the connections end with the process. All that a launcher
// sees of MPI_Finalize stays.
inline constexpr const char* kMpiSource = R"(#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void* ucp_disconnect_nb(void* endpoint) { (void)endpoint; return 0; }
int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  const char* given = getenv("PMI_RANK");
  if (!strcmp(how, "before") && given && !strcmp(given, "1")) return 0;
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!strcmp(how, "abort") && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
  if (!strcmp(how, "crash") && rank == 1) abort();
  if (!strcmp(how, "leave") && rank == 1) _exit(0);
  if (!strcmp(how, "wait")) { printf("up\n"); fflush(stdout); sleep(300); }
  double sum = 0, pi = 0;
  for (int i = rank; i < 1000; i += size) {
    const double x = (i + 0.5) / 1000;
    sum += 4 / (1 + x * x) / 1000;
  }
  MPI_Allreduce(&sum, &pi, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d: pi %.4f\n", rank, size, pi);
  MPI_Finalize();
  return !strcmp(how, "code") && rank == 0 ? 3 : 0;
}
)";

// Its path in `folder`; empty where MPICH's compiler is not installed.
inline std::string build_mpi_program(const std::string& folder) {
  const std::string compiler = find_program("mpicc.mpich");
  if (compiler.empty()) return "";
  write_file(folder + "/pi.c", kMpiSource);
  const auto built = run({compiler, "-rdynamic", "-o", folder + "/pi", folder + "/pi.c"});
  EXPECT_EQ(built.exit_code, 0) << built.err;
  return folder + "/pi";
}

}  // namespace tandem::testing
