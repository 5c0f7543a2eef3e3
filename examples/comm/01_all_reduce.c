// 01: the sum over all ranks, under a launcher:
//   mpirun -n 2 build/release/bin/examples/comm/comm_01_all_reduce
// or by hand, one line per rank:
//   RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 …/comm_01_all_reduce &
//   RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 …/comm_01_all_reduce
#include "check.h"

int main(void) {
  tdmComm_t comm;
  check(tdmCommInitFromEnvironment(&comm, NULL), NULL);
  int rank, count;
  check(tdmCommUserRank(comm, &rank), comm);
  check(tdmCommCount(comm, &count), comm);

  float data[1000];
  for (int i = 0; i < 1000; ++i) data[i] = (float)(i + rank);
  check(tdmAllReduce(data, data, 1000, tdmFloat32, tdmSum, comm), comm);  // in place

  if (rank == 0) printf("%d ranks: element 999 is %.0f\n", count, data[999]);
  check(tdmCommDestroy(comm), comm);
  return 0;
}
// Last line with 2 ranks: 2 ranks: element 999 is 1999
