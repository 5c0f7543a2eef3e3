// A descriptor that becomes readable when a child process ends.
#pragma once

#include <sys/types.h>

#include "tandem/net/socket.h"

namespace tandem::launch {

// Watches `child`, which this process has started and not reaped. poll() reports the descriptor as
// readable (POLLIN) once the child has ended; the caller reaps it with waitpid(). Linux 5.3 and
// newer: a pidfd. Older kernels: the end of a pipe that a detached thread closes; the thread ends
// with the child. Without a descriptor or a thread to spare: an empty descriptor and errno.
net::FileDescriptor watch_child(pid_t child);

}  // namespace tandem::launch
