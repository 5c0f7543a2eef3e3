#include "tandem/elastic/protocol/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/crc32c.h"
#include "tandem/core/error.h"
#include "tandem/net/job_token.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::membership {
namespace {

using testing::HasSubstr;

// The two ends of a connection between agents that were given these tokens.
struct Ends {
  explicit Ends(std::string token_a = "secret", std::string token_b = "secret") {
    a = {.job = 7, .own_nonce = "nonce of a", .other_nonce = "nonce of b"};
    b = {.job = 7, .own_nonce = "nonce of b", .other_nonce = "nonce of a"};
    a.prove = [token_a](auto parts) { return net::prove(token_a, parts); };
    b.prove = [token_b](auto parts) { return net::prove(token_b, parts); };
  }
  Channel a, b;
};

std::string with_checksum(std::string bytes) {
  const std::uint32_t checksum = crc32c(bytes);
  return bytes.append(net::view_of(checksum));
}

View example_view() {
  View view;
  view.number = {9, 4};
  view.after = {{7, 3}, {8, 1}};
  view.members = {{{4, "n4:29400"}, 2, 17}, {{5, "[::1]:29400"}, 1, 16}};
  view.step = 17;
  view.source = view.members[0].peer;
  view.paused = true;
  view.faults = {{5, 1, 18, "signal 11"}};
  return view;
}

std::vector<Message> examples() {
  Answer answer;
  answer.number = {9, 4};
  answer.promised = {10, 5};
  answer.node_state = {17, 3, true};
  answer.installed = example_view();
  answer.accepted = {example_view(), example_view()};
  answer.dead = {1, 2};
  answer.unreachable = {3};
  answer.faults = {{4, 2, 18, "exit code 70"}};
  Ask ask{{"host", {"amx", "avx2"}, {}, 4}, {3, 1, false}};
  ask.who.files[31] = 255;
  ask.who.inputs = "learning_rate=1\n";
  return {ask,
          AskReply{Verdict::kLearn, "why", 3, example_view()},
          Propose{{1, 2}, {0, 0}},
          answer,
          Offer{example_view(), {example_view()}},
          Accept{{1, 2}},
          Install{{1, 2}},
          Beat{{1, 2}, 3},
          Suspect{{1, 2}, {3}, {4, 5}},
          Ended{143, "left"},
          AppMessage{AppMessageKind::kAddress, {1, 2}, "where"}};
}

TEST(Wire, KeepsEveryKindOfMessage) {
  ASSERT_EQ(examples().size(), std::variant_size_v<Message>);
  Ends ends;
  Ends again;
  for (const Message& message : examples()) {
    const std::string bytes = encode(ends.a, {{4, "n4:29400"}, 5, message});
    EXPECT_EQ(frame_bytes(ends.b, bytes.substr(0, kHeaderBytes)), bytes.size());
    const Frame frame = decode(ends.b, bytes);
    EXPECT_EQ(frame.from, (Peer{4, "n4:29400"}));
    EXPECT_EQ(frame.to, 5u);
    EXPECT_EQ(frame.message.index(), message.index());
    EXPECT_EQ(encode(again.a, frame), bytes);
  }
}

// Every bit counts: in the header, the message and the proof. The link is blamed for all but the
// last.
TEST(Wire, RefusesAFrameThatWasChanged) {
  Ends sender;
  const std::string bytes =
      encode(sender.a, {{4, "n4"}, 5, AskReply{Verdict::kLearn, "", 3, example_view()}});
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    Ends ends;
    if (bit / 8 < bytes.size() - std::tuple_size_v<WireProof>) {
      EXPECT_THROW(decode(ends.b, changed), DamagedFrame) << bit;
    } else {
      EXPECT_THROW(decode(ends.b, changed), CommError) << bit;
    }
  }
}

TEST(Wire, RefusesPeersWithoutTheToken) {
  Ends ends("secret", "another");
  const std::string bytes = encode(ends.a, {{4, "n4"}, 5, Beat{}});
  try {
    decode(ends.b, bytes);
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("TANDEM_JOB_TOKEN"));
  }
}

TEST(Wire, RefusesReplayedMessages) {
  Ends ends;
  const std::string bytes = encode(ends.a, {{4, "n4"}, 5, Beat{}});
  decode(ends.b, bytes);
  EXPECT_THROW(decode(ends.b, bytes), CommError);  // again
  Ends other;
  EXPECT_THROW(decode(other.a, bytes), CommError);  // to the sender
  Ends later;
  later.b.own_nonce = later.a.other_nonce = "another";  // on another connection
  EXPECT_THROW(decode(later.b, bytes), CommError);
}

TEST(Wire, NamesWhatItFound) {
  Ends ends;
  std::string bytes = encode(ends.a, {{4, "n4"}, 5, Beat{}});
  const auto message_of = [&](const std::string& changed) {
    try {
      frame_bytes(ends.b, changed);
    } catch (const CommError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto with = [&](std::size_t at, char byte) {
    std::string other = bytes;
    other[at] = byte;
    return with_checksum(other.substr(0, kHeaderBytes - 4)) + other.substr(kHeaderBytes);
  };
  EXPECT_THAT(message_of(with(4, 1)), HasSubstr("version 1, expected 8"));
  EXPECT_THAT(message_of(with(12, 1)), HasSubstr("another job"));
  EXPECT_THAT(message_of(with(11, 127)), HasSubstr("bytes"));
  bytes[4] = 3;  // had no checksums
  EXPECT_THAT(message_of(bytes), HasSubstr("version 3, expected 8"));
  EXPECT_THAT(message_of("GET /"), HasSubstr("too early"));
}

// A right proof does not make a message right: a member may have gone wrong.
TEST(Wire, RefusesImpossibleContents) {
  Ends ends;
  ends.a.prove = ends.b.prove = [](auto) { return WireProof{}; };
  std::string bytes = encode(ends.a, {{4, ""}, 5, Suspect{{1, 2}, {3}, {}}});
  // from: id 8, address 2; to 8; the number 16; then the list's count
  const std::size_t count = kHeaderBytes + 34;
  ASSERT_EQ(bytes[count], 1);
  const std::size_t summed = bytes.size() - std::tuple_size_v<WireProof> - 4;
  const auto sealed = [&] {
    return with_checksum(bytes.substr(0, summed)) + std::string(std::tuple_size_v<WireProof>, 0);
  };
  EXPECT_NO_THROW(decode(ends.b, sealed()));
  bytes[count] = 2;
  EXPECT_THROW(decode(ends.b, sealed()), CommError);
  bytes[count + 3] = 127;
  EXPECT_THROW(decode(ends.b, sealed()), CommError);
}

TEST(Wire, RefusesToSendTooMuch) {
  Ends ends;
  EXPECT_THROW(encode(ends.a, {{4, "n4"}, 5, Ended{1, std::string(kMostText + 1, 'x')}}),
               InvalidArgument);
}

}  // namespace
}  // namespace tandem::membership
