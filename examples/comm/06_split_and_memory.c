// 06: buffers that all ranks of a node have mapped, and communicators of parts of the ranks.
#include "check.h"

enum { kCount = 100000 };

int main(void) {
  tdmComm_t comm;
  check(tdmCommInitFromEnvironment(&comm, NULL), NULL);
  int rank;
  check(tdmCommUserRank(comm, &rank), comm);

  // Inside a node this sum reads and writes the buffers of all ranks where they lie.
  void* memory;
  check(tdmMemAlloc(comm, &memory, kCount * sizeof(double)), comm);
  double* data = memory;
  for (int i = 0; i < kCount; ++i) data[i] = 0.5 + rank;
  check(tdmAllReduce(data, data, kCount, tdmFloat64, tdmSum, comm), comm);
  const double sum = data[kCount - 1];
  check(tdmMemFree(comm, memory), comm);

  // Even ranks and odd ranks for themselves; it is destroyed before what it was made of.
  tdmComm_t part;
  check(tdmCommSplit(comm, rank % 2, rank, &part), comm);
  int in_part;
  check(tdmCommCount(part, &in_part), part);
  check(tdmBarrier(part), part);
  check(tdmCommDestroy(part), part);

  if (rank == 0) printf("sum %.1f, ranks in the part of rank 0: %d\n", sum, in_part);
  check(tdmCommDestroy(comm), comm);
  return 0;
}
// Last line with 2 ranks: sum 2.0, ranks in the part of rank 0: 1
