// Unauthenticated connections to rank 0's port while a job starts, and ranks without the token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "support/ports.h"
#include "tandem/core/error.h"
#include "tandem/net/connect.h"
#include "tandem/net/event_loop.h"
#include "tandem/rendezvous/bootstrap.h"
#include "tandem/rendezvous/bootstrap_wire.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;
using tandem::testing::free_port;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr milliseconds kTimeout{20000};

struct BootstrapOutcome {
  std::vector<Met> met;
  std::string error;
  bool config_error = false;
  std::string log;
  double seconds = 0;
};

// A rank of a job in a thread of its own.
class Rank {
 public:
  Rank(int rank, int world_size, int port, const std::string& token = "",
       milliseconds timeout = kTimeout, milliseconds late_ranks = {}, int local_size = 0) {
    identity_.rank = rank;
    identity_.world_size = world_size;
    identity_.local_size = local_size != 0 ? local_size : world_size;
    identity_.local_rank = rank % identity_.local_size;
    identity_.master_port = port;
    identity_.job_token = token;
    thread_ = std::thread([this, timeout, late_ranks] { run(timeout, late_ranks); });
  }
  ~Rank() {
    if (thread_.joinable()) thread_.join();
  }
  BootstrapOutcome wait() {
    thread_.join();
    return outcome_;
  }

 private:
  void run(milliseconds timeout, milliseconds late_ranks) {
    BootstrapOptions options;
    options.timeout = timeout;
    options.late_ranks = late_ranks;
    options.log = [this](const std::string& line) { outcome_.log += line + "\n"; };
    const net::Deadline clock(timeout);
    try {
      BootstrapResult bootstrap_result =
          exchange_peer_info(identity_, fmt::format("card {}", identity_.rank), options);
      bootstrap_result.bootstrap_monitor->finish(net::Deadline(timeout));
      outcome_.met = bootstrap_result.met;
    } catch (const ConfigError& error) {
      outcome_.error = error.what();
      outcome_.config_error = true;
    } catch (const Error& error) {
      outcome_.error = error.what();
    }
    outcome_.seconds = clock.elapsed_seconds();
  }
  Identity identity_;
  BootstrapOutcome outcome_;
  std::thread thread_;
};

net::FileDescriptor visit(int port) {
  const std::vector<std::string> host = {"127.0.0.1"};
  const net::Deadline deadline(kTimeout);
  std::string failure;
  while (!deadline.passed()) {
    net::Connected found = net::connect_first(host, port, net::Handshake(), deadline, failure);
    if (found.socket) return std::move(found.socket);
  }
  ADD_FAILURE() << failure;
  return {};
}

void send_bytes(const net::FileDescriptor& socket, const std::string& bytes) {
  net::send_all(socket, std::as_bytes(std::span(bytes)), net::Deadline(milliseconds(2000)));
}

struct UnauthenticatedPeer {
  const char* name;
  void (*visit)(int port, std::vector<net::FileDescriptor>& stay);
};

void PrintTo(const UnauthenticatedPeer& one, std::ostream* out) { *out << one.name; }

class UnauthenticatedPeers : public ::testing::TestWithParam<UnauthenticatedPeer> {};

TEST_P(UnauthenticatedPeers, DoNotDisturbTheStart) {
  const int port = free_port();
  Rank zero(0, 3, port);
  std::vector<net::FileDescriptor> stay;
  GetParam().visit(port, stay);
  Rank one(1, 3, port);
  GetParam().visit(port, stay);
  Rank two(2, 3, port);
  for (Rank* rank : {&zero, &one, &two}) {
    const BootstrapOutcome outcome = rank->wait();
    EXPECT_EQ(outcome.error, "");
    ASSERT_EQ(outcome.met.size(), 3u);
    EXPECT_EQ(outcome.met[2].peer_info, "card 2");
    EXPECT_LT(outcome.seconds, 8.0) << "the wait for an unauthenticated peer was not cut short";
  }
}

std::string handshake_with(std::size_t peer_info_bytes) {
  net::FrameProtocol wide = wire::kToRank0;
  wide.most_payload = std::size_t{1} << 30;
  return net::encode_frame(
      wide, wire::kHandshake,
      {wire::view_of(wire::HandshakeMessage()), std::string(peer_info_bytes, 'x')});
}

INSTANTIATE_TEST_SUITE_P(
    All, UnauthenticatedPeers,
    ::testing::Values(
        UnauthenticatedPeer{"ConnectAndLeave", [](int port, auto&) { visit(port); }},
        UnauthenticatedPeer{"WebBrowser",
                            [](int port, auto& stay) {
                              stay.push_back(visit(port));
                              send_bytes(stay.back(), "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n");
                            }},
        UnauthenticatedPeer{"Silence", [](int port, auto& stay) { stay.push_back(visit(port)); }},
        UnauthenticatedPeer{"HalfAHello",
                            [](int port, auto& stay) {
                              stay.push_back(visit(port));
                              send_bytes(stay.back(), handshake_with(0).substr(0, 50));
                            }},
        UnauthenticatedPeer{"AnEndlessCard",
                            [](int port, auto& stay) {
                              stay.push_back(visit(port));
                              send_bytes(stay.back(), handshake_with(100000));
                            }},
        UnauthenticatedPeer{"ACardThatNeverComes",
                            [](int port, auto& stay) {
                              const std::string whole = handshake_with(1000);
                              stay.push_back(visit(port));
                              send_bytes(stay.back(), whole.substr(0, whole.size() - 1000));
                            }},
        UnauthenticatedPeer{"AForgedRank",  // the right form, the wrong proof
                            [](int port, auto& stay) {
                              wire::HandshakeMessage rank_handshake;
                              rank_handshake.world_size = 3;
                              rank_handshake.rank = 2;
                              stay.push_back(visit(port));
                              send_bytes(stay.back(), wire::handshake_frame(rank_handshake, ""));
                            }},
        UnauthenticatedPeer{"Reset",
                            [](int port, auto&) {
                              const net::FileDescriptor socket = visit(port);
                              const linger at_once{1, 0};
                              ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once,
                                           sizeof at_once);
                            }},
        UnauthenticatedPeer{"ACrowd",
                            [](int port, auto& stay) {
                              for (int i = 0; i < 300; ++i) {
                                stay.push_back(visit(port));
                                send_bytes(stay.back(), "T");
                              }
                            }}),
    [](const auto& instance) { return std::string(instance.param.name); });

wire::Challenge challenge_on(const net::FileDescriptor& socket) {
  wire::Challenge challenge;
  net::receive_all(socket, std::as_writable_bytes(std::span(&challenge, 1)),
                   net::Deadline(kTimeout));
  return challenge;
}

net::Frame next_frame(const net::FileDescriptor& socket, const net::FrameProtocol& protocol) {
  net::FrameReader reader(protocol);
  const net::Deadline deadline(kTimeout);
  std::optional<net::Frame> frame;
  while (!frame && net::wait_readable(socket.get(), deadline) && !reader.read_one_from(socket))
    frame = reader.take();
  if (!frame) frame = reader.take();
  EXPECT_TRUE(frame.has_value());
  return frame.value_or(net::Frame());
}

// The kind and text of rank 0's next reply.
std::pair<std::uint32_t, std::string> reply_on(const net::FileDescriptor& socket) {
  const net::Frame reply = next_frame(socket, wire::from_rank_0(3));
  return {reply.kind, reply.payload.substr(std::min(reply.payload.size(), sizeof(net::ProofCode)))};
}

// A reply of rank 0 in a job of two.
std::string reply_frame(wire::Kind kind, const net::ProofCode& proof, std::string_view text) {
  return net::encode_frame(wire::from_rank_0(2), kind, {wire::view_of(proof), text});
}

// Another version of tandem, or random bytes that look like one: it is notified, the ranks log it,
// and the job starts.
TEST(Versions, ThatDifferAreRefusedAndTheJobStarts) {
  for (const std::string token : {"", "secret"}) {
    const int port = free_port();
    Rank zero(0, 3, port, token);
    Rank two(2, 3, port, token);
    const net::FileDescriptor other = visit(port);
    challenge_on(other);
    wire::HandshakeMessage rank_handshake;
    rank_handshake.version = 99;
    rank_handshake.rank = 1;
    send_bytes(other, wire::handshake_frame(rank_handshake, "a peer info in a form of its own"));
    const auto [status, text] = reply_on(other);
    EXPECT_EQ(status, wire::kConfigError);
    EXPECT_THAT(text, AllOf(HasSubstr("rank 1"), HasSubstr("it has version 99"),
                            HasSubstr("the same tandem on all hosts")));
    Rank one(1, 3, port, token);
    for (Rank* rank : {&zero, &one, &two}) {
      const BootstrapOutcome outcome = rank->wait();
      EXPECT_EQ(outcome.error, "");
      EXPECT_THAT(outcome.log, HasSubstr("it has version 99")) << "every rank is notified";
    }
  }
}

TEST(Versions, OfRankZeroToo) {
  const net::FileDescriptor listener = net::listen_tcp(true, 0);
  Rank one(1, 2, net::local_port(listener));
  const net::FileDescriptor victim = net::accept_tcp(listener, 5000);
  wire::Challenge challenge;
  challenge.version = wire::kVersion + 1;
  send_bytes(victim, std::string(wire::view_of(wire::sealed(challenge))));
  const BootstrapOutcome outcome = one.wait();
  EXPECT_TRUE(outcome.config_error);
  EXPECT_THAT(outcome.error, HasSubstr(fmt::format(
                                 "has version {} of the rendezvous protocol, rank 1 has version {}",
                                 wire::kVersion + 1, wire::kVersion)));
}

TEST(JobToken, RanksThatKnowItMeet) {
  const int port = free_port();
  Rank zero(0, 2, port, "correct horse");
  Rank one(1, 2, port, "correct horse");
  EXPECT_EQ(zero.wait().error, "");
  EXPECT_EQ(one.wait().error, "");
}

// A job without a token gets advice, once, on rank 0.
TEST(JobToken, AJobBetweenHostsWithoutOneIsWarned) {
  for (const std::string token : {"", "secret"}) {
    const int port = free_port();
    Rank zero(0, 2, port, token, kTimeout, {}, /*local_size=*/1);
    Rank one(1, 2, port, token, kTimeout, {}, /*local_size=*/1);
    EXPECT_EQ(one.wait().log, "");
    const BootstrapOutcome outcome = zero.wait();
    EXPECT_EQ(outcome.error, "");
    if (!token.empty()) {
      EXPECT_EQ(outcome.log, "");
      continue;
    }
    EXPECT_THAT(outcome.log,
                AllOf(HasSubstr(fmt::format(
                          "no TANDEM_JOB_TOKEN: any process that can reach port {}", port)),
                      HasSubstr("export TANDEM_JOB_TOKEN=$(openssl rand -hex 16)")));
  }
}

struct Tokens {
  const char* name;
  const char* rank_0;
  const char* rank_1;
  const char* expected;
};

void PrintTo(const Tokens& one, std::ostream* out) { *out << one.name; }

class WrongTokens : public ::testing::TestWithParam<Tokens> {};

TEST_P(WrongTokens, AreAClearErrorOnBothSides) {
  const int port = free_port();
  Rank zero(0, 2, port, GetParam().rank_0, milliseconds(1500));
  Rank one(1, 2, port, GetParam().rank_1, milliseconds(1500));
  const BootstrapOutcome refused = one.wait();
  EXPECT_TRUE(refused.config_error);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("refused"), HasSubstr("rank 1"),
                                   HasSubstr(GetParam().expected), HasSubstr("TANDEM_JOB_TOKEN")));
  const BootstrapOutcome waited = zero.wait();
  EXPECT_THAT(waited.log, HasSubstr(GetParam().expected));
  EXPECT_THAT(waited.error, AllOf(HasSubstr("rank 1"), HasSubstr(GetParam().expected)));
}

INSTANTIATE_TEST_SUITE_P(All, WrongTokens,
                         ::testing::Values(Tokens{"Different", "one", "another",
                                                  "its TANDEM_JOB_TOKEN is not rank 0's"},
                                           Tokens{"OnlyRankZero", "one", "",
                                                  "it has no TANDEM_JOB_TOKEN, rank 0 has one"},
                                           Tokens{"OnlyTheOther", "", "another",
                                                  "it has a TANDEM_JOB_TOKEN, rank 0 has none"}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(JobToken, AWrongOneDoesNotEndAJobIfTheRightRankComes) {
  const int port = free_port();
  Rank zero(0, 2, port, "right");
  EXPECT_NE(Rank(1, 2, port, "wrong").wait().error, "");
  EXPECT_EQ(Rank(1, 2, port, "right").wait().error, "");
  EXPECT_EQ(zero.wait().error, "");
}

// Sends the handshake of rank 0 of a job with a token to the next connection.
std::pair<net::FileDescriptor, wire::Challenge> pose_as_rank_0(
    const net::FileDescriptor& listener) {
  net::FileDescriptor victim = net::accept_tcp(listener, 5000);
  wire::Challenge challenge;
  challenge.has_token = 1;
  send_bytes(victim, std::string(wire::view_of(wire::sealed(challenge))));
  return {std::move(victim), challenge};
}

// A peer cannot make a rank allocate memory before rank 0 is authenticated.
TEST(JobToken, AFalseRankZeroCannotAnnounceAHugeTable) {
  const net::FileDescriptor listener = net::listen_tcp(true, 0);
  Rank one(1, 2, net::local_port(listener), "right");
  const auto [victim, challenge] = pose_as_rank_0(listener);
  net::FrameProtocol wide = wire::from_rank_0(2);
  wide.most_payload = std::size_t{1} << 30;
  const std::string table(wire::from_rank_0(2).most_payload + 1, 'x');
  send_bytes(victim, net::encode_frame(wide, wire::kOk, {table}).substr(0, net::kFrameHeadBytes));
  EXPECT_THAT(one.wait().error, HasSubstr("received an invalid answer of rank 0"));
}

// Rank 1 connected and exited; rank 2 connects after rank 0 has failed, and need not wait for its
// own timeout.
TEST(LateRanks, ReceiveTheReasonOfTheFailure) {
  const int port = free_port();
  Rank zero(0, 3, port, "", kTimeout, milliseconds(10000));
  net::FileDescriptor rank_1 = visit(port);
  wire::HandshakeMessage rank_handshake;
  rank_handshake.world_size = 3;
  rank_handshake.rank = 1;
  rank_handshake.proof = wire::handshake_proof("", challenge_on(rank_1).nonce, rank_handshake, "");
  send_bytes(rank_1, wire::handshake_frame(rank_handshake, ""));
  const net::FileDescriptor unauthenticated_peer = visit(port);
  challenge_on(unauthenticated_peer);
  wire::HandshakeMessage strange;
  strange.version = 99;
  send_bytes(unauthenticated_peer, wire::handshake_frame(strange, ""));
  // Rank 1 receives the notice of the refused process: rank 0 has handled it.
  EXPECT_EQ(reply_on(rank_1).first, wire::kNotice);
  rank_1.reset();
  const BootstrapOutcome two = Rank(2, 3, port).wait();
  EXPECT_THAT(two.error, AllOf(HasSubstr("rank 1"), HasSubstr("ended while the job was starting")));
  EXPECT_EQ(zero.wait().error, two.error);
}

// A process that took rank 0's port must not receive the secrets of the ranks.
TEST(JobToken, AFalseRankZeroIsFoundOut) {
  const net::FileDescriptor listener = net::listen_tcp(true, 0);
  Rank one(1, 2, net::local_port(listener), "right");
  const auto [victim, challenge] = pose_as_rank_0(listener);
  const auto rank_handshake = wire::handshake_of(next_frame(victim, wire::kToRank0));
  const net::ProofCode guess =
      wire::reply_proof("guess", challenge.nonce, rank_handshake.nonce, wire::kOk, "");
  send_bytes(victim, reply_frame(wire::kOk, guess, ""));
  EXPECT_THAT(one.wait().error,
              AllOf(HasSubstr("refused the process at"), HasSubstr("TANDEM_JOB_TOKEN")));
}

// A code for one handshake is invalid in another.
TEST(JobToken, CodesDependOnEveryPart) {
  const net::ProofCode code = net::prove("token", {"ab", "c"});
  EXPECT_TRUE(net::same_proof(code, net::prove("token", {"ab", "c"})));
  EXPECT_FALSE(net::same_proof(code, net::prove("Token", {"ab", "c"})));
  EXPECT_FALSE(net::same_proof(code, net::prove("token", {"a", "bc"})));
  EXPECT_FALSE(net::same_proof(code, net::prove("token", {"ab", "c", ""})));
  EXPECT_NE(net::make_nonce(), net::make_nonce());
}

BootstrapResult join_job(int rank, int size, int port) {
  Identity identity;
  identity.rank = identity.local_rank = rank;
  identity.world_size = identity.local_size = size;
  identity.master_port = port;
  BootstrapOptions options;
  options.timeout = kTimeout;
  return exchange_peer_info(identity, "card", options);
}

TEST(BootstrapMonitor, ARankThatEndsBeforeAllAreReadyIsNamed) {
  const int port = free_port();
  const auto join = [&](int rank) { return join_job(rank, 3, port); };
  const auto error_of = [&](int rank) {
    try {
      BootstrapResult bootstrap_result = join(rank);
      bootstrap_result.bootstrap_monitor->finish(net::Deadline(kTimeout));
    } catch (const CommError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::string zero, two;
  std::thread first([&] { zero = error_of(0); });
  std::thread third([&] { two = error_of(2); });
  join(1);  // and exits without a message
  first.join();
  third.join();
  EXPECT_THAT(zero, AllOf(HasSubstr("rank 1"), HasSubstr("died while the ranks were connecting")));
  EXPECT_EQ(two, zero);
}

// Longer than the longest reason: rank 0 polled forever without reading it.
TEST(BootstrapMonitor, ARankThatSendsTooMuchEndsTheWait) {
  const int port = free_port();
  const auto join = [&](int rank) { return join_job(rank, 2, port); };
  std::string error;
  std::thread first([&] {
    try {
      BootstrapResult bootstrap_result = join(0);
      bootstrap_result.bootstrap_monitor->finish(net::Deadline(kTimeout));
    } catch (const CommError& failure) {
      error = failure.what();
    }
  });
  const BootstrapResult second = join(1);
  net::EventLoop loop;
  second.bootstrap_monitor->add_to(loop);
  const std::string words(3 * wire::kMaxTextBytes, 'x');
  EXPECT_EQ(::send(loop.waits().front().fd, words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
  first.join();
  EXPECT_THAT(error, HasSubstr("is damaged"));
}

TEST(BootstrapMonitor, TheReasonOfARankThatGivesUpReachesAll) {
  const int port = free_port();
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      BootstrapResult bootstrap_result = join_job(rank, 3, port);
      if (rank == 2)
        return bootstrap_result.bootstrap_monitor->give_up("rank 2 found no route to rank 1");
      try {
        bootstrap_result.bootstrap_monitor->finish(net::Deadline(kTimeout));
      } catch (const CommError& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors[0], HasSubstr("found no route to rank 1"));
  EXPECT_THAT(errors[1], HasSubstr("found no route to rank 1"));
}

}  // namespace
}  // namespace tandem::rendezvous
