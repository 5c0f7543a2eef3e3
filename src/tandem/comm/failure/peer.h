// Information about another rank.
#pragma once

#include <sys/types.h>

#include <string>

namespace tandem::comm {

struct Peer {
  int rank = 0;
  std::string host;
  pid_t pid = 0;
  std::string node_key;          // equal for ranks that share memory
  bool pid_is_visible = false;   // in this process's pid namespace, and a different process
  int port = 0;                  // port of its listener; 0: unknown
  std::string describe() const;  // "rank 3 (host node1, pid 4711)"
};

}  // namespace tandem::comm
