// 07: continuing without a rank that is lost. The sum of the ranks that are left is exact, and no
// rank starts again.
#include "check.h"

int main(void) {
  tdmComm_t comm;
  check(tdmCommInitFromEnvironment(&comm, NULL), NULL);
  int rank, count;
  check(tdmCommUserRank(comm, &rank), comm);
  check(tdmCommCount(comm, &count), comm);
  check(tdmBarrier(comm), comm);

  // The last rank is lost. A killed rank would send even less; the others detect that just as well.
  if (rank == count - 1) {
    check(tdmCommAbort(comm), comm);
    check(tdmCommDestroy(comm), comm);
    return 0;
  }
  double x = 1 + rank;
  tdmResult_t result = tdmSuccess;
  while (result == tdmSuccess) result = tdmAllReduce(&x, &x, 1, tdmFloat64, tdmMax, comm);
  if (result != tdmRemoteError) check(result, comm);

  // Every remaining rank calls this. The ranks receive new numbers in the old order.
  tdmComm_t rest;
  check(tdmCommShrink(comm, NULL, 0, &rest, NULL, TDM_SHRINK_DEFAULT), comm);
  check(tdmCommDestroy(comm), comm);
  check(tdmCommUserRank(rest, &rank), rest);
  check(tdmCommCount(rest, &count), rest);
  x = 1 + rank;
  check(tdmAllReduce(&x, &x, 1, tdmFloat64, tdmSum, rest), rest);
  if (rank == 0) printf("the sum over %s is %.1f\n", count == 1 ? "one rank" : "the others", x);
  check(tdmCommDestroy(rest), rest);
  return 0;
}
// Last line with 2 ranks: the sum over one rank is 1.0
