#include "tandem/net/pending_connections.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "tandem/net/connect.h"

namespace tandem::net {
namespace {

using std::chrono::milliseconds;

bool probes(const pollfd& listener_poll) {
  pollfd copy = listener_poll;
  return ::poll(&copy, 1, 2000) == 1;
}

FileDescriptor probe_at(const FileDescriptor& listener) {
  const std::string host[] = {"127.0.0.1"};
  std::string failure;
  return connect_first(host, local_port(listener), Handshake(), Deadline(milliseconds(5000)),
                       failure)
      .socket;
}

// A full queue does not poll its listener: the caller sleeps until there is room.
TEST(PendingConnections, ManyConnectionsInTheQueueWakeNoThread) {
  const FileDescriptor listener = listen_tcp(/*loopback_only=*/true, 0);
  PendingConnections pending(milliseconds(30000), 2);
  EXPECT_EQ(pending.poll_timeout(milliseconds(500)), milliseconds(500));
  std::vector<FileDescriptor> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(probe_at(listener));
  ASSERT_TRUE(probes(pending.listener_poll(listener)));
  pending.accept_from(listener, [] { return std::string("hello"); });
  // Two are pending, two are in the backlog.
  pollfd listener_poll = pending.listener_poll(listener);
  EXPECT_EQ(::poll(&listener_poll, 1, 0), 0);
  const milliseconds poll_timeout = pending.poll_timeout(milliseconds(5000));
  EXPECT_GT(poll_timeout.count(), 0);
  EXPECT_LE(poll_timeout.count(), 1001);
  // When the oldest connection is a second old, the next one is accepted.
  std::this_thread::sleep_for(poll_timeout);
  EXPECT_TRUE(probes(pending.listener_poll(listener)));
  EXPECT_EQ(pending.poll_timeout(milliseconds(5000)), milliseconds(5000));
}

// A connection that closes makes room at once and wakes the caller.
TEST(PendingConnections, AClosedConnectionMakesRoom) {
  const FileDescriptor listener = listen_tcp(/*loopback_only=*/true, 0);
  PendingConnections pending(milliseconds(30000), 1);
  FileDescriptor connection = probe_at(listener);
  ASSERT_TRUE(probes(pending.listener_poll(listener)));
  pending.accept_from(listener, [] { return std::string(); });
  EXPECT_EQ(pending.listener_poll(listener).events, 0);
  connection.reset();
  std::vector<pollfd> waits = {pending.listener_poll(listener)};
  pending.add_to(waits);
  ASSERT_EQ(::poll(waits.data(), waits.size(), 2000), 1);
  EXPECT_TRUE(pending.take_complete([](const std::string&) { return std::size_t{8}; }).empty());
  EXPECT_EQ(pending.listener_poll(listener).events, POLLIN);
}

}  // namespace
}  // namespace tandem::net
