#include "tandem/rendezvous/peer_owner.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>

#include "support/other_user.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {
namespace {

// As Linux 6.1 prints it.
constexpr const char* kTable =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode                                                     \n"
    "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
    "4711 1 0000000000000000 100 0 0 10 0                     \n"
    "   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 "
    "4712 1 0000000000000000 20 4 0 10 -1                     \n"
    "   2: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 "
    "4713 1 0000000000000000 20 4 0 10 -1                     \n"
    "   3: 0100007F:C352 0100007F:1F90 06 00000000:00000000 03:000016B4 00000000     0        0 0 "
    "3 "
    "0000000000000000                                          \n";

std::optional<uid_t> owner_in(const char* text, const char* local, const char* remote) {
  std::istringstream table(text);
  return owner_in_table(table, local, remote);
}

TEST(PeerOwner, IsFoundByBothEnds) {
  EXPECT_EQ(owner_in(kTable, "0100007F:C350", "0100007F:1F90"), 1000U);
  EXPECT_EQ(owner_in(kTable, "0100007F:1F90", "0100007F:C350"), 0U);
  EXPECT_EQ(owner_in(kTable, "0100007F:C351", "0100007F:1F90"), std::nullopt);
  EXPECT_EQ(owner_in(kTable, "0100007F:C352", "0100007F:1F90"), kNobody);
  EXPECT_EQ(owner_in("", "0100007F:C350", "0100007F:1F90"), std::nullopt);
  EXPECT_EQ(owner_in(" 1: a b c", "a", "b"), std::nullopt);
  EXPECT_EQ(owner_in(" 1: a b 01 0:0 0:0 0 -1 0 4711", "a", "b"), std::nullopt);
}

struct Connection {
  FileDescriptor listener;
  FileDescriptor accepted;
  pid_t visitor = -1;
};

// A connection of user `user` to a listener that takes both families, or loopback's own.
Connection connection_of(uid_t user, int family, bool loopback_only) {
  Connection made;
  made.listener = listen_tcp(loopback_only, 0, family);
  made.visitor = testing::connect_as(user, family, local_port(made.listener));
  made.accepted = accept_tcp(made.listener, 20000);
  return made;
}

TEST(PeerOwner, OfThisUserInBothFamilies) {
  for (const int family : {AF_INET, AF_INET6}) {
    for (const bool loopback_only : {true, false}) {
      const Connection made = connection_of(::geteuid(), family, loopback_only);
      if (!made.accepted && family == AF_INET6) continue;  // no IPv6 here
      ASSERT_TRUE(made.accepted);
      EXPECT_EQ(owner_of_peer(made.accepted), ::geteuid()) << family << loopback_only;
      testing::end_visit(made.visitor);
    }
  }
}

TEST(PeerOwner, OfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  for (const bool loopback_only : {true, false}) {
    const Connection made = connection_of(65534, AF_INET, loopback_only);
    ASSERT_TRUE(made.accepted);
    EXPECT_EQ(owner_of_peer(made.accepted), 65534U);
    testing::end_visit(made.visitor);
  }
}

// What a closed connection has sent can still be read, and older kernels give it to user 0.
TEST(PeerOwner, OfWhoHasGoneIsNobody) {
  for (const int family : {AF_INET, AF_INET6}) {
    const Connection made = connection_of(::geteuid(), family, /*loopback_only=*/false);
    if (!made.accepted && family == AF_INET6) continue;  // no IPv6 here
    ASSERT_TRUE(made.accepted);
    testing::end_visit(made.visitor);
    EXPECT_EQ(owner_of_peer(made.accepted), kNobody) << family;
  }
}

TEST(PeerOwner, OfASocketWithoutAnAddress) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const FileDescriptor one(pair[0]);
  const FileDescriptor other(pair[1]);
  EXPECT_EQ(owner_of_peer(one), std::nullopt);
}

}  // namespace
}  // namespace tandem::rendezvous
