// A pipe that programs started later do not inherit.
#pragma once

#include "tandem/net/socket.h"

namespace tandem::launch {

struct PipeEnds {
  net::FileDescriptor read, write;
};

// Throws IoError.
PipeEnds make_pipe();

}  // namespace tandem::launch
