// Answers of a process manager to a rank, up to the end of its connection.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "fuzz/memory.h"
#include "tandem/core/error.h"
#include "tandem/net/socket.h"
#include "tandem/rendezvous/pmi.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  int ends[2];
  if (size > 65536 || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  // A line of 64 KB at most, in which four bytes are a name and a value of a map.
  const fuzz::MemoryLimit limit(64 * size + 65536);
  const net::FileDescriptor rank(ends[0]);
  net::FileDescriptor manager(ends[1]);
  if (::send(manager.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return 0;
  ::shutdown(manager.get(), SHUT_WR);
  try {
    rendezvous::PmiClient pmi(rank.get(), std::chrono::seconds(5));
    pmi.put("key", "value");
    pmi.enter_barrier();
    if (!pmi.passed_barrier(std::chrono::seconds(5))) return 0;
    (void)pmi.get("key");
    pmi.finalize();
  } catch (const CommError&) {
  }
  return 0;
}
