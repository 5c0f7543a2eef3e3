// 05: a rank gives up. Every call of the others ends, the failure is the same on all ranks, and the
// process continues: it can save its work and exit normally.
#include <string.h>

#include "check.h"

int main(void) {
  tdmComm_t comm;
  check(tdmCommInitFromEnvironment(&comm, NULL), NULL);
  int rank, count;
  check(tdmCommUserRank(comm, &rank), comm);
  check(tdmCommCount(comm, &count), comm);

  // A wrong argument is found here, and nothing is sent: the communicator stays usable.
  float x = 1;
  tdmResult_t result = tdmBroadcast(&x, &x, 1, tdmFloat32, count, comm);
  if (result != tdmInvalidArgument) return 1;
  if (rank == 0) printf("%s\n", tdmGetLastError(comm));
  check(tdmBarrier(comm), comm);

  // The last rank gives up; the others wait for it in a sum.
  if (rank == count - 1) {
    check(tdmCommAbort(comm), comm);
  } else {
    result = tdmAllReduce(&x, &x, 1, tdmFloat32, tdmSum, comm);
    tdmResult_t state;
    check(tdmCommGetAsyncError(comm, &state), comm);
    if (result == tdmRemoteError && state == tdmRemoteError &&
        strstr(tdmGetLastError(comm), "gave up") != NULL && rank == 0) {
      printf("a rank gave up: %s\n", tdmGetErrorString(result));
    }
  }
  check(tdmCommDestroy(comm), comm);
  return 0;
}
// Last line with 2 ranks: a rank gave up: a rank or the network failed, or a wait passed its
// deadline
