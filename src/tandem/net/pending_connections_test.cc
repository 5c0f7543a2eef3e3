#include "tandem/net/pending_connections.h"

#include <gtest/gtest.h>

#include "tandem/net/connect.h"

namespace tandem::net {
namespace {

using std::chrono::milliseconds;

// Whether a connection to the listener or of the queue ends the wait.
bool wakes(const PendingConnections& pending, const FileDescriptor& listener, milliseconds limit) {
  EventLoop loop;
  pending.add_listener(listener, loop);
  pending.add_to(loop);
  return loop.run_once(limit);
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
  std::vector<FileDescriptor> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(probe_at(listener));
  ASSERT_TRUE(wakes(pending, listener, milliseconds(2000)));
  pending.accept_from(listener, [] { return std::string("hello"); });
  // Two are pending, two are in the backlog.
  EXPECT_FALSE(wakes(pending, listener, milliseconds(0)));
  // When the oldest connection is a second old, the wait ends, and the next one is accepted.
  const Deadline asleep(milliseconds(9000));
  EXPECT_FALSE(wakes(pending, listener, milliseconds(9500)));
  EXPECT_FALSE(asleep.passed());
  EXPECT_TRUE(wakes(pending, listener, milliseconds(2000)));
}

// A connection that closes makes room at once and wakes the caller.
TEST(PendingConnections, AClosedConnectionMakesRoom) {
  const FileDescriptor listener = listen_tcp(/*loopback_only=*/true, 0);
  PendingConnections pending(milliseconds(30000), 1);
  FileDescriptor connection = probe_at(listener);
  ASSERT_TRUE(wakes(pending, listener, milliseconds(2000)));
  pending.accept_from(listener, [] { return std::string(); });
  EXPECT_FALSE(wakes(pending, listener, milliseconds(0)));
  connection.reset();
  ASSERT_TRUE(wakes(pending, listener, milliseconds(2000)));
  EXPECT_TRUE(pending.take_complete([](const std::string&) { return std::size_t{8}; }).empty());
  connection = probe_at(listener);
  EXPECT_TRUE(wakes(pending, listener, milliseconds(2000)));
}

}  // namespace
}  // namespace tandem::net
