// For the examples: ends the program with the library's message when a call fails.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "tandem/comm/tandem_comm.h"

static inline void check(tdmResult_t result, tdmComm_t comm) {
  if (result == tdmSuccess) return;
  fprintf(stderr, "%s: %s\n", tdmGetErrorString(result), tdmGetLastError(comm));
  exit(1);
}
