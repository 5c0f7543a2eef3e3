/* A world of one rank: the sum of a number over all ranks. */
#include <stdio.h>

#include "tandem/comm/tandem_comm.h"

int main(void) {
  tdmComm_t comm;
  float value = 21;
  int count = 0;
  if (tdmCommInitFromEnvironment(&comm, NULL) != tdmSuccess) return 1;
  if (tdmCommCount(comm, &count) != tdmSuccess) return 2;
  if (tdmAllReduce(&value, &value, 1, tdmFloat32, tdmSum, comm) != tdmSuccess) return 3;
  printf("%d rank: %.0f\n", count, value);
  return tdmCommDestroy(comm) != tdmSuccess;
}
