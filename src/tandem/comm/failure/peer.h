// What a rank knows about another one.
#pragma once

#include <sys/types.h>

#include <string>

namespace tandem::comm {

struct Peer {
  int rank = 0;
  std::string host;
  pid_t pid = 0;
  std::string node_key;          // equal for ranks that share memory
  bool pid_is_visible = false;   // in this process's pid namespace, and another process
  int port = 0;                  // where it listens; 0: not known
  std::string describe() const;  // "rank 3 (host node1, pid 4711)"
};

}  // namespace tandem::comm
