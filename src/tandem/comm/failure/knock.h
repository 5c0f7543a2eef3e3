// Asks a host that has fallen silent whether it is there, with a new connection. After an
// interruption the old ones wait up to as long as it has lasted before they try again, because
// TCP's pauses double; a new one asks at once. Any answer will do, a refusal too: the other host's
// kernel gives it. Nothing is sent.
#pragma once

#include "tandem/rendezvous/socket.h"

namespace tandem::comm {

class Knock {
 public:
  // Begins to connect to `port` of the host at the other end of `connection`; forgets the request
  // before. Never waits.
  void ask(const rendezvous::FileDescriptor& connection, int port);
  // Whether the newest request has been answered.
  bool answered();

 private:
  rendezvous::FileDescriptor socket_;
  bool answered_ = false;
};

}  // namespace tandem::comm
