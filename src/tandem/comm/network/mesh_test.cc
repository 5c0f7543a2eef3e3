#include "tandem/comm/network/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/un.h>

#include <array>
#include <barrier>
#include <cstring>
#include <sstream>

#include "tandem/comm/api/test_ranks.h"
#include "tandem/core/file.h"

namespace tandem::comm {
namespace {

using rendezvous::FileDescriptor;
using rendezvous::Met;
using std::chrono::milliseconds;
using testing::CardBoard;

// Runs `meanwhile` with all cards after the ranks have met and before they connect to each other;
// returns whether all connected.
bool connect_two_ranks(const std::function<void(const std::vector<Met>&)>& meanwhile) {
  CardBoard board(2);
  std::barrier met(2);
  std::array<bool, 2> connected{};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      MeshOptions options;
      options.timeout = milliseconds(20000);
      options.loopback_only = true;
      const auto exchange = [&](const std::string& card) {
        rendezvous::Meeting meeting = board.exchange_of(rank)(card);
        if (rank == 0) meanwhile(meeting.met);
        met.arrive_and_wait();
        return meeting;
      };
      const Mesh mesh = connect_mesh(rank, 2, exchange, options);
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

// The abstract names of this process's UNIX sockets are for all users of the machine to read.
TEST(Mesh, NoNameOfASocketTellsASecret) {
  EXPECT_TRUE(connect_two_ranks([](const std::vector<Met>& met) {
    const std::string names = read_file("/proc/net/unix");
    EXPECT_THAT(names, ::testing::HasSubstr("@tandem-"));
    for (const Met& one : met) {
      const std::vector<std::string> card = lines_of(one.card);
      ASSERT_GE(card.size(), 10u);
      for (const std::size_t secret : {8u, 9u}) {
        const auto value = std::stoull(card[secret]);
        EXPECT_EQ(names.find(fmt::format("{:016x}", value)), std::string::npos);
        EXPECT_EQ(names.find(fmt::format("{}", value)), std::string::npos);
      }
    }
  }));
}

// Who knows a socket's name and not the secret gets nothing, and does not disturb the ranks either.
TEST(Mesh, AStrangerAtTheLocalSocketIsLeftOut) {
  std::vector<FileDescriptor> strangers;
  EXPECT_TRUE(connect_two_ranks([&](const std::vector<Met>& met) {
    const auto listener = std::stoull(lines_of(met[0].card)[7]);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = fmt::format("tandem-{:016x}-0", listener);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    for (const std::uint64_t guess : {std::uint64_t{0}, std::uint64_t{listener}}) {
      FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
      rendezvous::RankHello hello;
      hello.kind = rendezvous::ConnectionKind::kLocal;
      hello.rank = 1;
      hello.secret = {guess, guess};
      ASSERT_EQ(::send(socket.get(), &hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
      strangers.push_back(std::move(socket));
    }
  }));
  for (const FileDescriptor& stranger : strangers) {
    char byte;
    EXPECT_EQ(::recv(stranger.get(), &byte, 1, 0), 0) << "the stranger was let in";
  }
}

}  // namespace
}  // namespace tandem::comm
