// Each bit of the bytes on a connection is flipped: no damaged data is delivered, and the link is
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "tandem/comm/failure/control_message.h"
#include "tandem/comm/network/stream_transport.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using net::FileDescriptor;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::pair<FileDescriptor, FileDescriptor> connection() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    raise<IoError>("no sockets");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Monitor::Options options_of(int rank) {
  Monitor::Options options;
  options.rank = rank;
  return options;
}

// A rank of two with one end of a data connection, and the other end.
struct DamagedRank {
  explicit DamagedRank(int rank) : own(rank) {
    for (int i = 0; i < 2; ++i) {
      peers[static_cast<std::size_t>(i)].rank = i;
      peers[static_cast<std::size_t>(i)].host = "node" + std::to_string(i);
    }
    auto [here, there] = connection();
    other = std::move(there);
    std::vector<FileDescriptor> sockets(2);
    sockets[static_cast<std::size_t>(1 - rank)] = std::move(here);
    transport = std::make_unique<StreamTransport>(std::move(sockets), peers, rank, monitor, failure,
                                                  std::make_shared<DataPaths>());
  }
  int own;
  std::vector<Peer> peers = std::vector<Peer>(2);
  Failure failure;
  Monitor monitor{peers, std::vector<FileDescriptor>(2), failure, options_of(own)};
  FileDescriptor other;
  std::unique_ptr<StreamTransport> transport;
};

Header header_of(std::span<const std::byte> bytes, std::uint64_t sequence) {
  Header header;
  header.sequence = sequence;
  header.count = header.bytes = bytes.size();
  return header;
}

// Two messages and an empty one, as rank 1 sends them.
std::string sent(std::span<const std::byte> bytes) {
  DamagedRank sender(1);
  std::string stream;
  for (const std::uint64_t sequence : {0u, 1u, 2u}) {
    const auto part = sequence == 1 ? bytes.first(0) : bytes;
    sender.transport->send(0, header_of(part, sequence), part);
  }
  char piece[4096];
  ssize_t count = 0;
  while ((count = ::recv(sender.other.get(), piece, sizeof piece, 0)) > 0)
    stream.append(piece, static_cast<std::size_t>(count));
  return stream;
}

// DamagedRank 0 receives them. Returns for each message whether it was delivered.
std::vector<bool> receive(DamagedRank& receiver, const std::string& stream,
                          std::span<const std::byte> expected) {
  std::vector<std::vector<std::byte>> targets(3, std::vector<std::byte>(expected.size()));
  std::vector<std::shared_ptr<const Message>> messages;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto target = std::span(targets[i]).first(i == 1 ? 0 : expected.size());
    messages.push_back(receiver.transport->receive(1, header_of(target, i), target));
  }
  EXPECT_EQ(::send(receiver.other.get(), stream.data(), stream.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(stream.size()));
  for (int i = 0; i < 10; ++i) receiver.transport->progress(microseconds(0));
  std::vector<bool> delivered;
  for (std::size_t i = 0; i < 3; ++i) {
    delivered.push_back(messages[i]->done);
    if (!delivered.back() || i == 1) continue;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), targets[i].begin()));
  }
  return delivered;
}

TEST(Damage, OfAnyBitOfAMessageIsFoundBeforeItIsDelivered) {
  std::vector<std::byte> bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  const std::string whole = sent(bytes);
  ASSERT_EQ(whole.size(), 3 * sizeof(FrameHead) + 2 * (bytes.size() + 4));
  DamagedRank calm(0);
  EXPECT_EQ(receive(calm, whole, bytes), std::vector<bool>(3, true));
  EXPECT_FALSE(calm.failure.is_set());
  const std::size_t first = sizeof(FrameHead) + bytes.size() + 4;
  for (std::size_t bit = 0; bit < 8 * whole.size(); bit += 1) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    DamagedRank rank(0);
    const std::size_t damaged = bit / 8 < first ? 0 : bit / 8 < first + sizeof(FrameHead) ? 1 : 2;
    const std::vector<bool> delivered = receive(rank, changed, bytes);
    for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(delivered[i], i < damaged) << bit;
    ASSERT_TRUE(rank.transport->closed(1)) << bit;
    ASSERT_THAT(rank.failure.message(),
                AllOf(HasSubstr("the link from rank 1 (host node1"), HasSubstr("is damaged: "),
                      HasSubstr("to rank 0 (host node0")))
        << bit;
    EXPECT_THROW(rank.failure.raise_failure(""), DamagedLink);
  }
}

// Whole frames in another order, repeated, or missing, as after damage to TCP's sequence numbers.
TEST(Damage, OfTheOrderOfFramesIsFound) {
  const std::vector<std::byte> bytes(100);
  const std::string whole = sent(bytes);
  const std::size_t first = sizeof(FrameHead) + bytes.size() + 4;
  for (const std::string& stream :
       {whole.substr(0, first) + whole, whole.substr(first),
        whole.substr(0, first) + whole.substr(first + sizeof(FrameHead))}) {
    DamagedRank rank(0);
    const std::vector<bool> delivered = receive(rank, stream, bytes);
    EXPECT_FALSE(delivered[1] || delivered[2]);
    EXPECT_THAT(rank.failure.message(), HasSubstr("expected frame"));
  }
}

// A control message is dropped, and the next one is read.
TEST(Damage, OfAnyBitOfAControlMessageIsFound) {
  const std::string message = encode({ControlKind::kFailure, "a reason"});
  for (std::size_t bit = 0; bit < 8 * message.size(); bit += 5) {
    std::string changed = message;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    std::vector<Peer> peers(2);
    peers[1].rank = 1;
    Failure failure;
    auto [here, there] = connection();
    std::vector<FileDescriptor> control(2);
    control[1] = std::move(here);
    Monitor monitor(peers, std::move(control), failure, {});
    const std::string stream = changed + encode({ControlKind::kGoodbye});
    ASSERT_EQ(::send(there.get(), stream.data(), stream.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(stream.size()));
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!monitor.left(1) && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(microseconds(50));
    EXPECT_TRUE(monitor.left(1)) << bit;
    ASSERT_THAT(failure.message(), HasSubstr("a control message arrived with a wrong checksum"))
        << bit;
  }
}

}  // namespace
}  // namespace tandem::comm
