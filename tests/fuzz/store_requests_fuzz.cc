// What clients of the TCPStore say to an agent's store, in two pieces: the first byte says where
// they are cut. A second client waits meanwhile.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/launch/store_server.h"
#include "tandem/rendezvous/plain_bytes.h"
#include "tandem/rendezvous/torch_store.h"

namespace {

using namespace tandem;

struct Pair {
  Pair() {
    int ends[2];
    fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    client = rendezvous::FileDescriptor(ends[0]);
    server = rendezvous::FileDescriptor(ends[1]);
  }
  rendezvous::FileDescriptor client, server;
};

std::string challenge() {
  std::string text(1, static_cast<char>(rendezvous::torch_store::kValidate));
  text += rendezvous::view_of(rendezvous::torch_store::kMagic);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 32768) return 0;
  // A key of eight bytes is a node of a map, for each client that waits for it another one; answers
  // are bounded by what is stored.
  const fuzz::MemoryLimit limit(128 * size + (std::size_t{256} << 10));
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = data[0] % bytes.size();
  launch::StoreServer store;
  Pair first, second;
  // The second waits for a key that the first may set.
  std::string waits = challenge();
  waits += static_cast<char>(rendezvous::torch_store::kWait);
  waits += rendezvous::view_of(std::uint64_t{1});
  waits += rendezvous::view_of(std::uint64_t{1});
  waits += 'a';
  store.adopt(std::move(second.server), waits);
  store.adopt(std::move(first.server), challenge() + bytes.substr(0, cut));
  store.serve();
  if (::send(first.client.get(), bytes.data() + cut, bytes.size() - cut, MSG_NOSIGNAL) < 0)
    return 0;
  for (int i = 0; i < 4; ++i) {
    store.serve();
    char answers[65536];
    while (::recv(first.client.get(), answers, sizeof answers, 0) > 0) {
    }
  }
  fuzz::require(store.num_clients() >= 1);  // whatever one does, the other is still served
  return 0;
}
