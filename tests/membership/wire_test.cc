#include "tandem/elastic/protocol/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/net/job_token.h"

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

// Reads exactly one frame, as an agent's connection does.
Frame decode(Channel& channel, std::string_view bytes) {
  const auto frame = net::decode_frame(kAgentProtocol, bytes);
  if (!frame || net::kFrameHeadBytes + frame->payload.size() != bytes.size())
    raise<CommError>("{} bytes are not one frame", bytes.size());
  return membership::decode(channel, *frame);
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
    const Frame frame = decode(ends.b, bytes);
    EXPECT_EQ(frame.from, (Peer{4, "n4:29400"}));
    EXPECT_EQ(frame.to, 5u);
    EXPECT_EQ(frame.message.index(), message.index());
    EXPECT_EQ(encode(again.a, frame), bytes);
  }
}

// Every bit counts: in the head, the message and the proof. The link is blamed.
TEST(Wire, RefusesAFrameThatWasChanged) {
  Ends sender;
  const std::string bytes =
      encode(sender.a, {{4, "n4"}, 5, AskReply{Verdict::kLearn, "", 3, example_view()}});
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    Ends ends;
    EXPECT_THROW(decode(ends.b, changed), net::DamagedFrame) << bit;
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

// A peer that knows the checksums, but not the token, can change no part of a message.
TEST(Wire, RefusesAChangeWithTheRightChecksums) {
  Ends sender;
  const std::string bytes =
      encode(sender.a, {{4, "n4"}, 5, AskReply{Verdict::kLearn, "", 3, example_view()}});
  const net::Frame frame = net::decode_frame(kAgentProtocol, bytes).value();
  for (std::size_t bit = 0; bit < 8 * frame.payload.size(); ++bit) {
    net::Frame changed = frame;
    changed.payload[bit / 8] = static_cast<char>(changed.payload[bit / 8] ^ (1 << bit % 8));
    Ends ends;
    EXPECT_THROW(membership::decode(ends.b, changed), CommError) << bit;
  }
  for (std::uint32_t kind = 0; kind < kAgentProtocol.num_kinds; ++kind) {
    Ends ends;
    const net::Frame changed{kind, frame.payload};
    if (kind == frame.kind) continue;
    EXPECT_THROW(membership::decode(ends.b, changed), CommError) << kind;
  }
}

TEST(Wire, NamesWhatItFound) {
  const auto message_of = [&](std::size_t at, char byte) {
    Ends ends;
    net::Frame frame =
        net::decode_frame(kAgentProtocol, encode(ends.a, {{4, "n4"}, 5, Beat{}})).value();
    frame.payload[at] = byte;
    try {
      membership::decode(ends.b, frame);
    } catch (const CommError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message_of(0, 1), HasSubstr("version 1, expected 9"));
  EXPECT_THAT(message_of(2, 1), HasSubstr("another job"));
  EXPECT_EQ(message_of(2, 7), "");
}

// Nothing before the proof is optional.
TEST(Wire, RefusesAMessageThatIsCutShort) {
  Ends ends;
  const net::Frame frame =
      net::decode_frame(kAgentProtocol, encode(ends.a, {{4, "n4"}, 5, Beat{}})).value();
  for (std::size_t bytes = 0; bytes < frame.payload.size(); ++bytes) {
    const net::Frame shorter{frame.kind, frame.payload.substr(0, bytes)};
    EXPECT_THROW(membership::decode(ends.b, shorter), CommError) << bytes;
  }
  EXPECT_NO_THROW(membership::decode(ends.b, frame));
}

// A right proof does not make a message right: a member may have gone wrong.
TEST(Wire, RefusesImpossibleContents) {
  Ends ends;
  ends.a.prove = ends.b.prove = [](auto) { return WireProof{}; };
  net::Frame frame =
      net::decode_frame(kAgentProtocol, encode(ends.a, {{4, ""}, 5, Suspect{{1, 2}, {3}, {}}}))
          .value();
  // version 2; job 8; from: id 8, address 2; to 8; the number 16; then the list's count
  constexpr std::size_t kCount = 44;
  ASSERT_EQ(frame.payload[kCount], 1);
  EXPECT_NO_THROW(membership::decode(ends.b, frame));
  frame.payload[kCount] = 2;
  EXPECT_THROW(membership::decode(ends.b, frame), CommError);
  frame.payload[kCount + 3] = 127;
  EXPECT_THROW(membership::decode(ends.b, frame), CommError);
}

TEST(Wire, RefusesToSendTooMuch) {
  Ends ends;
  EXPECT_THROW(encode(ends.a, {{4, "n4"}, 5, Ended{1, std::string(kMostText + 1, 'x')}}),
               InvalidArgument);
}

}  // namespace
}  // namespace tandem::membership
