// The bootstrap, over TCP and through a process manager with PMI-1.
#include "tandem/rendezvous/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "support/ports.h"
#include "tandem/core/error.h"
#include "tandem/net/socket.h"
#include "tandem/rendezvous/pmi.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;
using tandem::testing::free_port;
using ::testing::AllOf;
using ::testing::HasSubstr;

Identity identity_of(int rank, int world_size, int port) {
  Identity identity;
  identity.rank = rank;
  identity.world_size = world_size;
  identity.local_rank = rank;
  identity.local_size = world_size;
  identity.master_port = port;
  identity.master_port_given = true;
  return identity;
}

struct Outcome {
  std::vector<Met> met;
  std::string error;
  bool config_error = false;
};

Outcome attempt(const Identity& identity, milliseconds timeout, BootstrapOptions options = {}) {
  Outcome outcome;
  try {
    options.timeout = timeout;
    outcome.met = exchange_peer_info(identity, fmt::format("card {}", identity.rank), options).met;
  } catch (const ConfigError& error) {
    outcome.error = error.what();
    outcome.config_error = true;
  } catch (const CommError& error) {
    outcome.error = error.what();
  }
  return outcome;
}

std::vector<Outcome> attempt_all(const std::vector<Identity>& identities, milliseconds timeout) {
  std::vector<Outcome> outcomes(identities.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < identities.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = attempt(identities[i], timeout); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void expect_only_tandem_listens(int port) {
  const net::FileDescriptor unauthenticated_peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  EXPECT_NE(
      ::bind(unauthenticated_peer.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  for (const bool loopback_only : {true, false}) {
    EXPECT_EQ(net::local_port(net::listen_tcp(loopback_only, port)), port);
  }
}

// Every test with ranks at a port relies on this: a free port stays free until the ranks use it.
TEST(FreePort, IsForAListenerOfTandemOnly) { expect_only_tandem_listens(free_port()); }

TEST(Bootstrap, EveryRankGetsEveryPeerInfo) {
  for (const int world_size : {1, 2, 5}) {
    const int port = free_port();
    std::vector<Identity> identities;
    for (int rank = 0; rank < world_size; ++rank) {
      identities.push_back(identity_of(rank, world_size, port));
    }
    for (const Outcome& outcome : attempt_all(identities, milliseconds(20000))) {
      ASSERT_EQ(outcome.error, "");
      ASSERT_EQ(outcome.met.size(), static_cast<std::size_t>(world_size));
      for (int rank = 0; rank < world_size; ++rank) {
        EXPECT_EQ(outcome.met[static_cast<std::size_t>(rank)].peer_info,
                  fmt::format("card {}", rank));
      }
    }
  }
}

TEST(Bootstrap, RankZeroMayComeLast) {
  const int port = free_port();
  Outcome first;
  Outcome zero;
  std::thread other([&] { first = attempt(identity_of(1, 2, port), milliseconds(20000)); });
  std::this_thread::sleep_for(milliseconds(200));
  zero = attempt(identity_of(0, 2, port), milliseconds(20000));
  other.join();
  EXPECT_EQ(first.error, "");
  EXPECT_EQ(zero.error, "");
}

// A rank that connects later receives the report too.
TEST(Bootstrap, ARankThatFailedBeforeReportsTheReasonToAll) {
  for (const int failed : {0, 1}) {
    const int port = free_port();
    BootstrapOptions late;
    late.late_ranks = milliseconds(20000);
    std::vector<Outcome> outcomes(3);
    std::vector<std::thread> threads;
    for (const int rank : {0, 1, 2}) {
      if (rank == 2) std::this_thread::sleep_for(milliseconds(100));
      threads.emplace_back([&, rank] {
        const Identity identity = identity_of(rank, 3, port);
        if (rank == failed) return report_failure(identity, "bad\x1b flag", late);
        outcomes[static_cast<std::size_t>(rank)] = attempt(identity, milliseconds(60000), late);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int rank : {0, 1, 2}) {
      if (rank == failed) continue;
      const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      EXPECT_THAT(outcome.error,
                  AllOf(HasSubstr(fmt::format("rank {} (", failed)),
                        HasSubstr("failed before all ranks were connected: bad? flag")));
      EXPECT_FALSE(outcome.config_error);
    }
  }
}

// Handshakes of many ranks arrive together, and the first one is a failure: all ranks receive it.
TEST(Bootstrap, AFailureAmongManyHandshakesReachesAllRanks) {
  const int port = free_port();
  const int world = 48;
  BootstrapOptions late;
  late.late_ranks = milliseconds(20000);
  std::vector<Outcome> outcomes(world);
  std::vector<std::thread> threads;
  for (int rank = world - 1; rank >= 0; --rank) {
    if (rank == 0) std::this_thread::sleep_for(milliseconds(200));
    threads.emplace_back([&, rank] {
      const Identity identity = identity_of(rank, world, port);
      if (rank == world - 1) return report_failure(identity, "bad flag", late);
      outcomes[static_cast<std::size_t>(rank)] = attempt(identity, milliseconds(60000), late);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < world - 1; ++rank) {
    EXPECT_THAT(outcomes[static_cast<std::size_t>(rank)].error,
                HasSubstr(fmt::format("rank {} (", world - 1)))
        << "rank " << rank;
  }
}

// All ranks have the same wrong flag: no rank waits for the time that rank 0 would stay.
TEST(Bootstrap, RanksThatHaveAllFailedDoNotWait) {
  const int port = free_port();
  BootstrapOptions late;
  late.late_ranks = std::chrono::hours(1);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2})
    threads.emplace_back([&, rank] { report_failure(identity_of(rank, 3, port), "x", late); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Bootstrap, AFailedRankDoesNotWaitForRanksThatALauncherEnds) {
  Identity identity = identity_of(0, 2, free_port());
  identity.ended_by_launcher = true;
  BootstrapOptions late;
  late.late_ranks = std::chrono::hours(1);
  report_failure(identity, "x", late);
}

TEST(Bootstrap, AFailedRankLogsThatNoRankReceivedItsReport) {
  BootstrapOptions options;
  std::string logged;
  options.log = [&](const std::string& line) { logged += line; };
  report_failure(identity_of(1, 2, free_port()), "x", options);
  EXPECT_THAT(logged,
              AllOf(HasSubstr("could not be notified"), HasSubstr("could not reach rank 0")));
}

TEST(Bootstrap, RanksMeetAtTheLoopbackAddressOfIPv6) {
  try {
    net::listen_tcp(true, 0, AF_INET6);
  } catch (const Error& error) {
    GTEST_SKIP() << "needs IPv6: " << error.what();
  }
  const int port = free_port();
  std::vector<Identity> identities = {identity_of(0, 2, port), identity_of(1, 2, port)};
  for (Identity& identity : identities) {
    identity.master_addr = "::1";
    identity.master_addr_given = true;
  }
  for (const Outcome& outcome : attempt_all(identities, milliseconds(20000)))
    EXPECT_EQ(outcome.error, "");
}

TEST(Bootstrap, MissingRanksAreNamedOnAllThatCame) {
  const int port = free_port();
  const auto outcomes =
      attempt_all({identity_of(0, 4, port), identity_of(2, 4, port)}, milliseconds(600));
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("ranks 1, 3 of 4"), HasSubstr("waited 0."),
                                     HasSubstr(std::to_string(port))));
    EXPECT_FALSE(outcome.config_error);
  }
}

TEST(Bootstrap, AnAbsentRankZeroIsNamedWithAddressAndTime) {
  const int port = free_port();
  const Outcome outcome = attempt(identity_of(3, 4, port), milliseconds(300));
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("rank 3"), HasSubstr(fmt::format("127.0.0.1:{}", port)),
                    HasSubstr("within 0."), HasSubstr("refused")));
}

TEST(Bootstrap, ANameThatDoesNotResolveIsRetriedUntilTheDeadline) {
  Identity identity = identity_of(1, 2, 29500);
  identity.master_addr = "no-such-host.invalid";
  identity.master_addr_given = true;
  const Outcome outcome = attempt(identity, milliseconds(200));
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("no-such-host.invalid"), HasSubstr("does not resolve")));
}

TEST(Bootstrap, ATakenPortNamesWhatToTry) {
  const net::FileDescriptor occupant = net::listen_tcp(true, 0);
  const Outcome outcome = attempt(identity_of(0, 2, net::local_port(occupant)), milliseconds(300));
  EXPECT_TRUE(outcome.config_error);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr(std::to_string(net::local_port(occupant))),
                                   HasSubstr("taken"), HasSubstr("MASTER_PORT")));
}

TEST(Bootstrap, DifferentWorldSizesAreAnErrorOnBothSides) {
  const int port = free_port();
  const auto outcomes =
      attempt_all({identity_of(0, 2, port), identity_of(1, 3, port)}, milliseconds(5000));
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.config_error);
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("world size"), HasSubstr("rank 0 has 2"), HasSubstr("has 3")));
  }
}

TEST(Bootstrap, TwoProcessesWithOneRankAreAnError) {
  const int port = free_port();
  const auto outcomes =
      attempt_all({identity_of(0, 3, port), identity_of(1, 3, port), identity_of(1, 3, port)},
                  milliseconds(5000));
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.config_error);
    EXPECT_THAT(outcome.error, HasSubstr("two processes claim to be rank 1"));
  }
}

TEST(Bootstrap, AnUnauthenticatedPeerAtRankZerosAddressIsDetected) {
  const net::FileDescriptor listener = net::listen_tcp(true, 0);
  std::thread web_server([&] {
    const net::FileDescriptor client = net::accept_tcp(listener, 5000);
    const std::string answer =
        "HTTP/1.1 400 Bad Request\r\nServer: not tandem\r\nContent-Length: 0\r\n\r\n";
    net::send_all(client, std::as_bytes(std::span(answer)), net::Deadline(milliseconds(1000)));
  });
  const Outcome outcome = attempt(identity_of(1, 2, net::local_port(listener)), milliseconds(5000));
  web_server.join();
  EXPECT_THAT(outcome.error, HasSubstr("is not rank 0 of this job"));
}

// A process manager for `size` ranks: PMI-1 over socket pairs, one thread per rank.
class FakeHydra {
 public:
  explicit FakeHydra(int size) : size_(size) {
    for (int rank = 0; rank < size; ++rank) {
      int pair[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
      clients_.emplace_back(pair[0]);
      servers_.emplace_back(pair[1]);
    }
    for (int rank = 0; rank < size; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
  }
  ~FakeHydra() {
    for (net::FileDescriptor& client : clients_) client.reset();
    for (std::thread& thread : threads_) thread.join();
  }
  int descriptor(int rank) const { return clients_[static_cast<std::size_t>(rank)].get(); }
  int finalized() const { return finalized_; }
  // The exit code with which a rank asked to end the job.
  std::string aborted() {
    const std::unique_lock lock(mutex_);
    return aborted_;
  }

 private:
  void serve(int rank) {
    std::string received;
    char bytes[256];
    const int socket = servers_[static_cast<std::size_t>(rank)].get();
    while (true) {
      const ssize_t count = ::read(socket, bytes, sizeof bytes);
      if (count <= 0) return;
      received.append(bytes, static_cast<std::size_t>(count));
      for (auto newline = received.find('\n'); newline != std::string::npos;
           newline = received.find('\n')) {
        const std::string answer = respond(received.substr(0, newline)) + "\n";
        received.erase(0, newline + 1);
        // A rank that asks for the end of the job closes its side without waiting for an answer.
        const ssize_t sent = ::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EPIPE) return;
        EXPECT_EQ(sent, static_cast<ssize_t>(answer.size()));
      }
    }
  }
  static std::string field(const std::string& line, const std::string& name) {
    const auto at = line.find(" " + name + "=");
    if (at == std::string::npos) return "";
    const auto begin = at + name.size() + 2;
    return line.substr(begin, line.find(' ', begin) - begin);
  }
  std::string respond(const std::string& line) {
    std::unique_lock lock(mutex_);
    if (line.rfind("cmd=init ", 0) == 0)
      return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
    if (line == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_0";
    if (line.rfind("cmd=abort", 0) == 0) aborted_ = field(line, "exitcode");
    if (line.rfind("cmd=abort", 0) == 0) return "";  // never read
    if (line == "cmd=finalize") {
      ++finalized_;
      return "cmd=finalize_ack";
    }
    if (line.rfind("cmd=put ", 0) == 0) {
      values_[field(line, "key")] = field(line, "value");
      return "cmd=put_result rc=0 msg=success";
    }
    if (line.rfind("cmd=get ", 0) == 0) {
      const auto found = values_.find(field(line, "key"));
      if (found == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown";
      return "cmd=get_result rc=0 msg=success value=" + found->second;
    }
    EXPECT_EQ(line, "cmd=barrier_in");
    const int complete = (waiting_ / size_ + 1) * size_;
    ++waiting_;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(5), [&] { return waiting_ >= complete; });
    return "cmd=barrier_out rc=0";
  }

  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  int waiting_ = 0;
  int finalized_ = 0;
  std::string aborted_;
  std::vector<net::FileDescriptor> clients_;
  std::vector<net::FileDescriptor> servers_;
  std::vector<std::thread> threads_;
};

TEST(Bootstrap, ThroughTheProcessManagerNoPortIsAgreedBeforehand) {
  constexpr int kSize = 3;
  FakeHydra hydra(kSize);
  // Stands for another job at the default port.
  const net::FileDescriptor occupant = net::listen_tcp(true, 0);
  std::vector<Identity> identities;
  for (int rank = 0; rank < kSize; ++rank) {
    Identity identity = identity_of(rank, kSize, net::local_port(occupant));
    identity.master_port_given = false;
    identity.pmi_fd = hydra.descriptor(rank);
    identities.push_back(identity);
  }
  for (const Outcome& outcome : attempt_all(identities, milliseconds(20000))) {
    ASSERT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.met[2].peer_info, "card 2");
  }
  // The ranks remain members as long as their communicators exist: the manager too sees a later
  // crash as a crash.
  EXPECT_EQ(hydra.finalized(), 0);
}

TEST(Pmi, AMemberLeavesAtItsRequest) {
  FakeHydra hydra(1);
  { const Membership not_left(PmiClient(hydra.descriptor(0), milliseconds(5000))); }
  EXPECT_EQ(hydra.finalized(), 0);
  Membership member(PmiClient(hydra.descriptor(0), milliseconds(5000)));
  Membership moved = std::move(member);
  member.leave();
  EXPECT_EQ(hydra.finalized(), 0);
  moved.leave();
  moved.leave();
  EXPECT_EQ(hydra.finalized(), 1);
}

TEST(Pmi, AFailedRankAsksForTheEndOfTheJob) {
  FakeHydra hydra(1);
  end_job(Environment({{"PMI_FD", std::to_string(hydra.descriptor(0))}}), 200);
  for (int i = 0; i < 500 && hydra.aborted().empty(); ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(hydra.aborted(), "200");
  end_job(Environment(), 200);  // started by hand, under Open MPI: no manager to ask
}

TEST(Pmi, ASilentOrBrokenManagerIsAnError) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const net::FileDescriptor client(pair[0]);
  net::FileDescriptor server(pair[1]);
  try {
    PmiClient(client.get(), milliseconds(100));
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("PMI_FD"), HasSubstr("0.1 s"), HasSubstr("cmd=init")));
  }
  const std::string answer = "cmd=response_to_init pmi_version=2 rc=-1\n";
  ASSERT_GT(::write(server.get(), answer.data(), answer.size()), 0);
  EXPECT_THROW(PmiClient(client.get(), milliseconds(100)), CommError);
  server.reset();
  EXPECT_THROW(PmiClient(client.get(), milliseconds(100)), CommError);
}

}  // namespace
}  // namespace tandem::rendezvous
