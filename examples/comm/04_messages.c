// 04: every rank sends to the next and receives from the one before. In a group both are under way
// at the same time, so no rank has to go first, however large the messages are.
#include "check.h"

enum { kCount = 1 << 20 };

int main(void) {
  tdmComm_t comm;
  check(tdmCommInitFromEnvironment(&comm, NULL), NULL);
  int rank, count;
  check(tdmCommUserRank(comm, &rank), comm);
  check(tdmCommCount(comm, &count), comm);
  if (count == 1) {
    printf("a ring needs two ranks\n");
    check(tdmCommDestroy(comm), comm);
    return 0;
  }

  static int own[kCount], received[kCount];
  for (int i = 0; i < kCount; ++i) own[i] = 100 * rank + i % 100;
  check(tdmGroupBegin(comm), comm);
  check(tdmSend(own, kCount, tdmInt32, (rank + 1) % count, comm), comm);
  check(tdmRecv(received, kCount, tdmInt32, (rank + count - 1) % count, comm), comm);
  check(tdmGroupEnd(comm), comm);

  if (rank == 0) printf("received %d to %d\n", received[0], received[99]);
  check(tdmCommDestroy(comm), comm);
  return 0;
}
// Last line with 2 ranks: received 100 to 199
