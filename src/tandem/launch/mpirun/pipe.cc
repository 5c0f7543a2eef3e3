#include "tandem/launch/mpirun/pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "tandem/core/error.h"

namespace tandem::launch {

PipeEnds make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw io_error("cannot make", "a pipe", errno);
  return {net::FileDescriptor(ends[0]), net::FileDescriptor(ends[1])};
}

}  // namespace tandem::launch
