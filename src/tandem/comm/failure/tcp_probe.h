// Probes a silent host with a new TCP connection. After an interruption the old connections wait up
// to as long as it lasted before they retry, because TCP's pauses double; a new one tries at once.
// Any answer counts, even a refusal, because the other host's kernel sends it. No data is sent.
#pragma once

#include "tandem/net/socket.h"

namespace tandem::comm {

class TcpProbe {
 public:
  // Starts a connection to `port` of the host at the other end of `connection`; forgets the
  // previous probe. Never waits.
  void ask(const net::FileDescriptor& connection, int port);
  // Returns true if the newest probe was answered.
  bool answered();

 private:
  net::FileDescriptor socket_;
  bool answered_ = false;
};

}  // namespace tandem::comm
