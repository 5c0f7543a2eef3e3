// 02: ranks that no launcher started meet at an id. Rank 0 makes it, and the program carries its
// bytes to the others; here they are a child process and a pipe.
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int run(int rank, tdmUniqueId id) {
  tdmConfig_t config = TDM_CONFIG_INITIALIZER;
  config.timeout_ms = 60000;
  tdmComm_t comm;
  check(tdmCommInitRank(&comm, 2, id, rank, &config), NULL);

  double numbers[3] = {0, 0, 0};
  if (rank == 0) numbers[2] = 6.5;
  check(tdmBroadcast(numbers, numbers, 3, tdmFloat64, 0, comm), comm);
  check(tdmAllReduce(numbers, numbers, 3, tdmFloat64, tdmAvg, comm), comm);

  if (rank == 0) printf("the average is %.1f\n", numbers[2]);
  check(tdmCommDestroy(comm), comm);
  return 0;
}

int main(void) {
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t child = fork();  // before the id is made: only rank 0 may hold its port
  if (child < 0) return 1;
  tdmUniqueId id;
  if (child == 0) {
    close(ends[1]);
    if (read(ends[0], &id, sizeof id) != (ssize_t)sizeof id) return 1;
    return run(1, id);
  }
  check(tdmGetUniqueId(&id), NULL);
  if (write(ends[1], &id, sizeof id) != (ssize_t)sizeof id) return 1;
  run(0, id);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}
// Last line: the average is 6.5
