// The server of the TCPStore protocol (tandem/rendezvous/torch_store.h) that the agent provides for
// its workers, and through which torch.distributed's programs bootstrap
// (TORCHELASTIC_USE_AGENT_STORE).
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

// All input counts as hostile. Lengths are checked before memory is allocated. A client that
// violates the protocol loses its connection. If unfinished requests and unread answers fill the
// memory, so does the client that holds the most. All clients together store at most
// kMaxStoreBytes. The server never interprets a value. One thread.
class StoreServer {
 public:
  static constexpr std::size_t kMaxStoreBytes = std::size_t{1} << 30;

  StoreServer();
  ~StoreServer();

  // A connection that has sent `received`, beginning with kValidate.
  void adopt(rendezvous::FileDescriptor socket, std::string received);
  void add_to(std::vector<pollfd>& waits) const;
  // Does all work that is possible without waiting; finds the ready connections by a poll.
  void serve();
  // A new attempt of the job: the data and connections of the last one are dropped.
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
  std::map<int, std::unique_ptr<Client>> clients_;  // by client number
  int next_ = 0;
};

}  // namespace tandem::launch
