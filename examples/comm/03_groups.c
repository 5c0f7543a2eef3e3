// 03: many small sums at once. A group runs its operations at its end; neighbouring small sums of
// one type travel together.
#include "check.h"

enum { kTensors = 20, kSize = 64 };

int main(void) {
  tdmComm_t comm;
  check(tdmCommInitFromEnvironment(&comm, NULL), NULL);
  int rank;
  check(tdmCommUserRank(comm, &rank), comm);

  static float tensors[kTensors][kSize];
  for (int t = 0; t < kTensors; ++t)
    for (int i = 0; i < kSize; ++i) tensors[t][i] = (float)(t * (rank + 1));

  check(tdmGroupBegin(comm), comm);
  for (int t = 0; t < kTensors; ++t)
    check(tdmAllReduce(tensors[t], tensors[t], kSize, tdmFloat32, tdmSum, comm), comm);
  check(tdmGroupEnd(comm), comm);  // the results are there now

  if (rank == 0) printf("tensor 19 holds %.0f\n", tensors[19][kSize - 1]);
  check(tdmCommDestroy(comm), comm);
  return 0;
}
// Last line with 2 ranks: tensor 19 holds 57
