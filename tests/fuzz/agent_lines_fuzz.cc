// What somebody at the port of a job's host says: lines of an agent, or anything else.
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/launch/job_link.h"
#include "tandem/rendezvous/connect.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  using namespace std::chrono_literals;
  if (size == 0 || size > 16384) return 0;
  // An empty object of JSON takes 35 bytes for each of its text, one line of 64 KB at a time.
  const fuzz::MemoryLimit limit(64 * size + (std::size_t{256} << 10));
  rendezvous::FileDescriptor listener = rendezvous::listen_tcp(true, 0);
  const int port = rendezvous::local_port(listener);
  launch::JobRules rules;
  rules.max_nodes = 2;
  launch::AgentInfo own;
  own.host = "host";
  launch::JobHost host(std::move(listener), rules, own, "", 10s, [](const std::string&) {});
  std::string failure;
  const std::string hosts[] = {"127.0.0.1"};
  const auto client =
      rendezvous::connect_first(hosts, port, {}, rendezvous::Deadline(20s), failure).socket;
  if (!client) return 0;
  (void)host.serve();
  if (::send(client.get(), data, size, MSG_NOSIGNAL) < 0) return 0;
  for (int i = 0; i < 3; ++i) {
    (void)host.serve();
    char answers[65536];
    while (::recv(client.get(), answers, sizeof answers, MSG_DONTWAIT) > 0) {
    }
  }
  fuzz::require(host.poll_timeout() < 1h);
  return 0;
}
