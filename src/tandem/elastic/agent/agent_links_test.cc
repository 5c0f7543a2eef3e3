// Connections between agents, with unauthenticated peers at their ports.
#include "tandem/elastic/agent/agent_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "support/unauthenticated_peer.h"
#include "tandem/core/error.h"
#include "tandem/net/address.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/job_token.h"

namespace tandem::elastic {
namespace {

using membership::AppMessage;
using membership::AppMessageKind;
using membership::Frame;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr milliseconds kTimeout{20000};
constexpr milliseconds kGlance{10};
constexpr std::uint64_t kJob = 7;

class TestAgent {
 public:
  TestAgent(std::uint64_t id, const std::string& token)
      : TestAgent(id, token, net::listen_tcp(/*loopback_only=*/true, 0)) {}

  membership::Peer peer() const { return {id_, net::join_host("127.0.0.1", port_)}; }
  int port() const { return port_; }
  AgentLinks& links() { return links_; }
  void serve() {
    AgentLinks::News news = links_.serve();
    for (Frame& frame : news.frames) frames.push_back(std::move(frame));
    dead.insert(dead.end(), news.dead.begin(), news.dead.end());
  }

  std::vector<Frame> frames;
  std::vector<membership::NodeId> dead;
  std::vector<std::string> log;

 private:
  TestAgent(std::uint64_t id, const std::string& token, net::FileDescriptor listener)
      : id_(id),
        port_(net::local_port(listener)),
        links_(
            std::move(listener),
            {.self = peer(), .job = kJob, .token = token, .log = [this](const std::string& line) {
               log.push_back(line);
             }}) {}

  std::uint64_t id_;
  int port_;
  AgentLinks links_;
};

// Serves the agents until `done` or the timeout.
template <class Done>
bool serve_until(std::initializer_list<TestAgent*> agents, Done done) {
  const net::Deadline deadline(kTimeout);
  while (!done() && !deadline.passed()) {
    net::EventLoop loop;
    for (TestAgent* agent : agents) agent->links().add_to(loop);
    loop.run_once(milliseconds(10));
    for (TestAgent* agent : agents) agent->serve();
  }
  return done();
}

// The first frame of an agent with this token that has received `handshake`, and its own handshake.
std::string introduction(const std::string& token, std::uint64_t job,
                         const std::string& handshake) {
  const std::string own = net::make_handshake();
  membership::Channel channel;
  channel.job = job;
  channel.own_nonce = own;
  channel.other_nonce = handshake;
  channel.prove = [&](auto parts) { return net::prove(token, parts); };
  return own + membership::encode(channel, {{99, "127.0.0.1:9"}, 0, AppMessage{}});
}

std::string with(std::string text, std::size_t at, char byte) {
  text[at] = byte;
  return text;
}

// Bytes from a peer outside the job to an agent that has sent `handshake`.
std::vector<std::string> bytes_of_unauthenticated_peers(const std::string& token,
                                                        const std::string& handshake) {
  const std::string right = introduction(token, kJob, handshake);
  std::vector<std::string> all = {
      "",
      "GET / HTTP/1.1\r\n\r\n",
      std::string(1000, '\0'),
      with(right, 7, '9'),                             // another protocol
      with(right, net::kHandshakeBytes, 'x'),          // another magic
      with(right, net::kHandshakeBytes + 4, 9),        // another kind
      with(right, net::kHandshakeBytes + 11, '\x7f'),  // 2 GB
      introduction(token, kJob + 1, handshake),
      introduction(token, kJob, net::make_handshake()),  // made for another peer
      right.substr(0, right.size() - 1),
  };
  if (!token.empty()) all.push_back(introduction("another secret", kJob, handshake));
  return all;
}

TEST(AgentLinks, UnauthenticatedPeersDisturbNoAgent) {
  for (const std::string token : {"", "a secret"}) {
    const net::Deadline test(kTimeout);
    TestAgent one(1, token);
    TestAgent two(2, token);
    std::vector<net::FileDescriptor> unauthenticated_peers;
    const std::size_t kinds = bytes_of_unauthenticated_peers(token, net::make_handshake()).size();
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      unauthenticated_peers.emplace_back(testing::connect_to_port(one.port()));
      const int unauthenticated_peer = unauthenticated_peers.back().get();
      std::string handshake;
      ASSERT_TRUE(serve_until({&one}, [&] {
        handshake += testing::receive_bytes(unauthenticated_peer, kGlance,
                                            net::kHandshakeBytes - handshake.size())
                         .bytes;
        return handshake.size() == net::kHandshakeBytes;
      }));
      testing::send_bytes(unauthenticated_peer,
                          bytes_of_unauthenticated_peers(token, handshake)[kind]);
    }
    two.links().send(one.peer(), AppMessage{AppMessageKind::kAddress, {}, "here"});
    EXPECT_TRUE(serve_until({&one, &two}, [&] { return !one.frames.empty(); })) << token;
    one.links().send(two.peer(), AppMessage{AppMessageKind::kAddress, {}, "there"});
    EXPECT_TRUE(serve_until({&one, &two}, [&] { return !two.frames.empty(); })) << token;
    for (const TestAgent* agent : {&one, &two}) {
      ASSERT_THAT(agent->frames, SizeIs(1));
      EXPECT_THAT(agent->dead, SizeIs(0));
    }
    EXPECT_EQ(std::get<AppMessage>(one.frames[0].message).text, "here");
    EXPECT_EQ(one.frames[0].from, two.peer());
    for (const auto& unauthenticated_peer : unauthenticated_peers) {
      bool ended = false;
      EXPECT_TRUE(serve_until({&one}, [&] {
        ended = ended || testing::receive_bytes(unauthenticated_peer.get(), kGlance).ended;
        return ended;
      }));
    }
    // All of these connections are closed, with fewer log lines than connections.
    const auto seconds = static_cast<std::size_t>(test.elapsed_seconds());
    ASSERT_FALSE(one.log.empty());
    EXPECT_LE(one.log.size(), 1 + seconds / 10) << ::testing::PrintToString(one.log);
    EXPECT_THAT(one.log[0], HasSubstr("was shown out"));
  }
}

// Members of a view need not have exchanged a message before one of them ends.
TEST(AgentLinks, AnAgentThatEndedBeforeItSentAnythingIsDead) {
  TestAgent agent(1, "token");
  auto other = std::make_unique<TestAgent>(2, "token");
  const membership::Peer peer = other->peer();
  other.reset();
  agent.links().send(peer, membership::Beat{});
  EXPECT_TRUE(serve_until({&agent}, [&] { return !agent.dead.empty(); }));
  EXPECT_THAT(agent.dead, ::testing::ElementsAre(2));
}

// A peer that sends as fast as it can is read alternately with the others.
TEST(AgentLinks, NoPeerKeepsAnAgentFromTheOthers) {
  TestAgent one(1, "a secret");
  TestAgent two(2, "a secret");
  constexpr int kMany = 4000;
  const std::string text(4000, 'x');
  for (int i = 0; i < 200; ++i)
    two.links().send(one.peer(), AppMessage{AppMessageKind::kAddress, {}, text});
  ASSERT_TRUE(serve_until({&one, &two}, [&] { return one.frames.size() == 200; }));
  for (int i = 0; i < kMany; ++i)
    two.links().send(one.peer(), AppMessage{AppMessageKind::kAddress, {}, text});
  // Once the socket holds more than one turn takes, a turn is short.
  std::size_t most = 0;
  ASSERT_TRUE(serve_until({&one, &two}, [&] {
    const std::size_t before = one.frames.size();
    one.serve();
    most = std::max(most, one.frames.size() - before);
    return one.frames.size() >= kMany / 2;
  }));
  EXPECT_LE(most, (std::size_t{256} << 10) / text.size() + 1);
}

}  // namespace
}  // namespace tandem::elastic
