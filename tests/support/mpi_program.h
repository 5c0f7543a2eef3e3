// A program of MPI, as in MPICH's examples (cpi.c): computes pi on all ranks and says it, or fails
// in one of several ways.
#pragma once

#include <string>

#include "support/process.h"
#include "tandem/core/file.h"

namespace tandem::testing {

inline constexpr const char* kMpiSource = R"(#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
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
  const auto built = run({compiler, "-o", folder + "/pi", folder + "/pi.c"});
  EXPECT_EQ(built.exit_code, 0) << built.err;
  return folder + "/pi";
}

}  // namespace tandem::testing
