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
  EXPECT_FALSE(pending.take_complete([](const std::string&) { return std::size_t{8}; }));
  connection = probe_at(listener);
  EXPECT_TRUE(wakes(pending, listener, milliseconds(2000)));
}

// The handler of one handshake may throw: the other connections stay.
TEST(PendingConnections, OneCompleteHandshakeLeavesTheOthersInTheQueue) {
  const FileDescriptor listener = listen_tcp(/*loopback_only=*/true, 0);
  PendingConnections pending(milliseconds(30000), 4);
  const auto wanted = [](const std::string&) { return std::size_t{3}; };
  std::vector<FileDescriptor> ranks;
  for (const std::string_view words : {"one", "tw", "six"}) {
    ranks.push_back(probe_at(listener));
    send_all(ranks.back(), std::as_bytes(std::span(words)), Deadline(milliseconds(2000)));
  }
  std::vector<std::string> taken;
  const Deadline deadline(milliseconds(10000));
  while (taken.size() < 2 && !deadline.passed()) {
    wakes(pending, listener, milliseconds(100));
    pending.accept_from(listener, [] { return std::string(); });
    if (const auto connection = pending.take_complete(wanted)) {
      taken.push_back(connection->received);
    }
  }
  EXPECT_EQ(taken, (std::vector<std::string>{"one", "six"}));
  EXPECT_FALSE(pending.take_complete(wanted));
  send_all(ranks[1], std::as_bytes(std::span("o", 1)), Deadline(milliseconds(2000)));
  ASSERT_TRUE(wakes(pending, listener, milliseconds(2000)));
  const auto last = pending.take_complete(wanted);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->received, "two");
}

}  // namespace
}  // namespace tandem::net
