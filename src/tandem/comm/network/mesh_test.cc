#include "tandem/comm/network/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstring>
#include <sstream>

#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/core/file.h"

namespace tandem::comm {
namespace {

using net::FileDescriptor;
using rendezvous::Met;
using std::chrono::milliseconds;
using testing::PeerInfoBoard;

// Runs `meanwhile` with all peer info after the bootstrap and before the ranks connect to each
// other; returns whether all connected.
bool connect_two_ranks(const std::function<void(const std::vector<Met>&)>& meanwhile) {
  PeerInfoBoard board(2);
  std::barrier met(2);
  std::array<bool, 2> connected{};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      MeshOptions options;
      options.timeout = milliseconds(20000);
      options.loopback_only = true;
      const auto bootstrap = [&](const std::string& peer_info) {
        rendezvous::BootstrapResult bootstrap_result = board.exchange_of(rank)(peer_info);
        if (rank == 0) meanwhile(bootstrap_result.met);
        met.arrive_and_wait();
        return bootstrap_result;
      };
      const Mesh mesh = connect_mesh(rank, 2, bootstrap, options);
      const auto other = static_cast<std::size_t>(1 - rank);
      connected[static_cast<std::size_t>(rank)] =
          mesh.data[other] && mesh.control[other] && mesh.local[other];
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return connected[0] && connected[1];
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Rank 0's listener for its neighbours, found by the number in its peer info.
std::pair<sockaddr_un, socklen_t> local_address(std::uint64_t listener) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("tandem-{:016x}-0", listener);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

// Every user of the machine can read the abstract names of this process's UNIX sockets.
TEST(Mesh, NoNameOfASocketContainsASecret) {
  EXPECT_TRUE(connect_two_ranks([](const std::vector<Met>& met) {
    const std::string names = read_file("/proc/net/unix");
    EXPECT_THAT(names, ::testing::HasSubstr("@tandem-"));
    for (const Met& one : met) {
      const std::vector<std::string> peer_info = lines_of(one.peer_info);
      ASSERT_GE(peer_info.size(), 10u);
      for (const std::size_t secret : {8u, 9u}) {
        const auto value = std::stoull(peer_info[secret]);
        EXPECT_EQ(names.find(fmt::format("{:016x}", value)), std::string::npos);
        EXPECT_EQ(names.find(fmt::format("{}", value)), std::string::npos);
      }
    }
  }));
}

// A process that has a socket's name but not the secret receives nothing, and does not disturb the
// ranks.
TEST(Mesh, AnUnauthenticatedPeerAtTheLocalSocketIsRefused) {
  std::vector<FileDescriptor> unauthenticated_peers;
  EXPECT_TRUE(connect_two_ranks([&](const std::vector<Met>& met) {
    const auto listener = std::stoull(lines_of(met[0].peer_info)[7]);
    const auto [address, length] = local_address(listener);
    for (const std::uint64_t guess : {std::uint64_t{0}, std::uint64_t{listener}}) {
      FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
      net::RankHandshake rank_handshake;
      rank_handshake.kind = net::ConnectionKind::kLocal;
      rank_handshake.rank = 1;
      rank_handshake.secret = {guess, guess};
      rank_handshake = net::sealed(rank_handshake);
      ASSERT_EQ(::send(socket.get(), &rank_handshake, sizeof rank_handshake, 0),
                static_cast<ssize_t>(sizeof rank_handshake));
      unauthenticated_peers.push_back(std::move(socket));
    }
  }));
  for (const FileDescriptor& unauthenticated_peer : unauthenticated_peers) {
    char byte;
    EXPECT_EQ(::recv(unauthenticated_peer.get(), &byte, 1, 0), 0)
        << "the unauthenticated peer was let in";
  }
}

// A process of another user that has the secret: its exit code is 0 if its connection was closed.
// It has sent its handshake when this returns.
pid_t visit_as_another_user(const sockaddr_un& address, socklen_t length,
                            const net::RankHandshake& rank_handshake) {
  int ready[2];
  if (::pipe(ready) != 0) return -1;
  const pid_t child = ::fork();
  char byte = 0;
  if (child != 0) {
    ::close(ready[1]);
    EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "it could not ask";
    ::close(ready[0]);
    return child;
  }
  // Only system calls, since the other threads do not exist here. A listener that it kept open
  // would seem alive.
  ::dup2(ready[1], 3);
  ::close_range(4, ~0u, 0);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const bool asked =
      ::setresuid(65534, 65534, 65534) == 0 &&
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      ::send(socket, &rank_handshake, sizeof rank_handshake, 0) == ssize_t{sizeof rank_handshake} &&
      ::write(3, &byte, 1) == 1;
  ::_exit(asked && ::recv(socket, &byte, 1, 0) == 0 ? 0 : 1);
}

// A leaked secret gives no access to other users of the machine.
TEST(Mesh, AnotherUserWithTheSecretIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  pid_t visitor = -1;
  EXPECT_TRUE(connect_two_ranks([&](const std::vector<Met>& met) {
    const std::vector<std::string> peer_info = lines_of(met[0].peer_info);
    net::RankHandshake rank_handshake;
    rank_handshake.kind = net::ConnectionKind::kLocal;
    rank_handshake.rank = 1;
    rank_handshake.secret = {std::stoull(peer_info[8]), std::stoull(peer_info[9])};
    rank_handshake = net::sealed(rank_handshake);
    const auto [address, length] = local_address(std::stoull(peer_info[7]));
    visitor = visit_as_another_user(address, length, rank_handshake);
  }));
  int status = -1;
  ASSERT_EQ(::waitpid(visitor, &status, 0), visitor);
  EXPECT_EQ(status, 0) << "it was let in";
}

}  // namespace
}  // namespace tandem::comm
