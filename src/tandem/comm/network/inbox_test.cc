// Effects that headers of other ranks may have on this rank.
#include "tandem/comm/network/inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace tandem::comm {
namespace {

using ::testing::HasSubstr;

class InboxTest : public ::testing::Test {
 protected:
  static std::vector<Peer> two_peers() {
    std::vector<Peer> peers(2);
    peers[1].rank = 1;
    return peers;
  }
  static Header header_of(std::uint64_t bytes) {
    Header header;
    header.count = header.bytes = bytes;
    return header;
  }

  std::vector<Peer> peers_ = two_peers();
  Failure failure_;
  Monitor monitor_{peers_, std::vector<net::FileDescriptor>(2), failure_, Monitor::Options()};
  Inbox inbox_{peers_[0], peers_[1], monitor_};
};

TEST_F(InboxTest, AnAnnouncedMessageTakesMemoryAsItComes) {
  const auto incoming = inbox_.begin(header_of(std::uint64_t{1} << 39));
  ASSERT_TRUE(incoming);
  EXPECT_TRUE(incoming->storage.empty());
  std::size_t room = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(incoming->whole());
    incoming->grow();
    EXPECT_LE(incoming->target.size(), std::max<std::size_t>(2 * room, 1 << 20));
    EXPECT_GT(incoming->target.size(), room);
    room = incoming->target.size();
  }
}

TEST_F(InboxTest, MoreThanAMessageMayHaveIsRefused) {
  EXPECT_FALSE(inbox_.begin(header_of(std::uint64_t{1} << 41)));
  EXPECT_TRUE(inbox_.disagreed());
  ASSERT_TRUE(failure_.is_set());
  EXPECT_THAT(failure_.message(), HasSubstr("header of a message of 2199023255552 bytes"));
}

TEST_F(InboxTest, WhatCameInPiecesIsDeliveredWhole) {
  const std::size_t bytes = (std::size_t{3} << 20) + 17;
  const auto incoming = inbox_.begin(header_of(bytes));
  ASSERT_TRUE(incoming);
  std::size_t filled = 0;
  while (!incoming->whole()) {
    incoming->grow();
    for (; filled < incoming->target.size(); ++filled) {
      incoming->target[filled] = static_cast<std::byte>(filled * 7);
    }
  }
  inbox_.finish(*incoming);
  std::vector<std::byte> target(bytes);
  EXPECT_TRUE(inbox_.post(header_of(bytes), target)->done);
  for (std::size_t i = 0; i < bytes; i += 4099) {
    ASSERT_EQ(target[i], static_cast<std::byte>(i * 7)) << i;
  }
}

}  // namespace
}  // namespace tandem::comm
