// The server of the TCPStore protocol (tandem/rendezvous/torch_store.h) that the agent offers to
// its workers, and with which torch.distributed's programs meet (TORCHELASTIC_USE_AGENT_STORE).
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/launch/key_value_store.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::launch {

// Whatever arrives is taken as hostile: lengths are checked before memory is given, a client that
// breaks the protocol loses its connection, and so does the one that holds most when unfinished
// requests and unread answers fill the memory. What all clients together store is at most
// kMaxStoreBytes. It never interprets a value. One thread.
class StoreServer {
 public:
  static constexpr std::size_t kMaxStoreBytes = std::size_t{1} << 30;

  StoreServer();
  ~StoreServer();

  // A connection that has said `received`, beginning with kValidate.
  void adopt(rendezvous::FileDescriptor socket, std::string received);
  void add_to(std::vector<pollfd>& waits) const;
  // Does what can be done without waiting; the connections that are ready are found by asking.
  void serve();
  // A new attempt of the job: what the last one left is gone, and so are its connections.
  void clear();
  std::size_t num_clients() const { return clients_.size(); }

 private:
  struct Client;
  bool read(Client& client);
  bool write(Client& client);
  void answer_released();
  void show_out(int number);
  void show_out_the_greediest();

  KeyValueStore store_{kMaxStoreBytes};
  std::map<int, std::unique_ptr<Client>> clients_;  // by a number of their own
  int next_ = 0;
};

}  // namespace tandem::launch
