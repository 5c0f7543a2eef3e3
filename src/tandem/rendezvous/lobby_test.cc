#include "tandem/rendezvous/lobby.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "tandem/rendezvous/connect.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;

bool knocks(const pollfd& door) {
  pollfd copy = door;
  return ::poll(&copy, 1, 2000) == 1;
}

FileDescriptor knock_at(const FileDescriptor& listener) {
  const std::string host[] = {"127.0.0.1"};
  std::string failure;
  return connect_first(host, local_port(listener), Handshake(), Deadline(milliseconds(5000)),
                       failure)
      .socket;
}

// A full lobby does not poll its listener: the caller sleeps until there is room.
TEST(Lobby, ACrowdAtTheDoorWakesNobody) {
  const FileDescriptor listener = listen_tcp(/*loopback_only=*/true, 0);
  Lobby lobby(milliseconds(30000), 2);
  EXPECT_EQ(lobby.nap(milliseconds(500)), milliseconds(500));
  std::vector<FileDescriptor> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(knock_at(listener));
  ASSERT_TRUE(knocks(lobby.door(listener)));
  lobby.accept_from(listener, [] { return std::string("hello"); });
  // Two are pending, two are in the backlog.
  pollfd door = lobby.door(listener);
  EXPECT_EQ(::poll(&door, 1, 0), 0);
  const milliseconds nap = lobby.nap(milliseconds(5000));
  EXPECT_GT(nap.count(), 0);
  EXPECT_LE(nap.count(), 1001);
  // When the oldest connection is a second old, the next one is accepted.
  std::this_thread::sleep_for(nap);
  EXPECT_TRUE(knocks(lobby.door(listener)));
  EXPECT_EQ(lobby.nap(milliseconds(5000)), milliseconds(5000));
}

// A connection that closes makes room at once and wakes the caller.
TEST(Lobby, WhoLeavesMakesRoom) {
  const FileDescriptor listener = listen_tcp(/*loopback_only=*/true, 0);
  Lobby lobby(milliseconds(30000), 1);
  FileDescriptor guest = knock_at(listener);
  ASSERT_TRUE(knocks(lobby.door(listener)));
  lobby.accept_from(listener, [] { return std::string(); });
  EXPECT_EQ(lobby.door(listener).events, 0);
  guest.reset();
  std::vector<pollfd> waits = {lobby.door(listener)};
  lobby.add_to(waits);
  ASSERT_EQ(::poll(waits.data(), waits.size(), 2000), 1);
  EXPECT_TRUE(lobby.take_complete([](const std::string&) { return std::size_t{8}; }).empty());
  EXPECT_EQ(lobby.door(listener).events, POLLIN);
}

}  // namespace
}  // namespace tandem::rendezvous
