// Messages between two ranks, with the ranks on one node (memory), on two (memory and tcp) and each
// on its own (tcp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "support/require.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/node/node_streams.h"

namespace tandem::comm {
namespace {

using tandem::testing::require;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_processes;
using testing::run_threads;

struct Placement {
  const char* name;
  int ranks_per_node;
};

void PrintTo(const Placement& one, std::ostream* out) { *out << one.name; }

class Messages : public ::testing::TestWithParam<Placement> {
 protected:
  static Options options_of(int rank) {
    Options options = testing::test_options(rank);
    options.node_id = std::to_string(rank / GetParam().ranks_per_node);
    return options;
  }
};

std::vector<std::byte> text_of(int from, int to, std::size_t number, std::size_t bytes) {
  std::vector<std::byte> text(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    text[i] = static_cast<std::byte>(i * 13 + i / 997 + number * 5 +
                                     static_cast<std::size_t>(from * 3 + to));
  }
  return text;
}

// Around the length of a ring and of its pieces, and several rings.
std::vector<std::size_t> lengths() {
  const std::size_t ring = NodeStreams::ring_bytes(4);
  return {0, 1, 24, 4096, ring / 8 - 40, ring - 41, ring - 40, ring - 39, ring, 3 * ring + 5, 7, 0};
}

// Every rank sends messages to every rank on two channels; the receives are posted before, after
// and in between.
void exchange_all(Communicator& comm) {
  const std::vector<std::size_t> sizes = lengths();
  std::vector<std::vector<std::byte>> kept;
  std::vector<Request> sends;
  kept.reserve(sizes.size() * static_cast<std::size_t>(comm.size()));
  for (std::size_t n = 0; n < sizes.size(); ++n) {
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer == comm.rank()) continue;
      kept.push_back(text_of(comm.rank(), peer, n, sizes[n]));
      sends.push_back(
          comm.start_send(std::span<const std::byte>(kept.back()), peer, static_cast<int>(n % 2)));
    }
  }
  for (const std::size_t parity :
       {1ul, 0ul}) {  // the channel that was filled later is received first
    for (int step = 1; step < comm.size(); ++step) {
      const int peer = (comm.rank() + step) % comm.size();
      std::vector<std::vector<std::byte>> found(sizes.size());
      std::vector<Request> receives;
      for (std::size_t n = parity; n < sizes.size(); n += 2) {
        found[n].resize(sizes[n]);
        receives.push_back(
            comm.start_receive(std::span<std::byte>(found[n]), peer, static_cast<int>(parity)));
      }
      for (const Request& request : receives) comm.wait(request);
      for (std::size_t n = parity; n < sizes.size(); n += 2) {
        require(found[n] == text_of(peer, comm.rank(), n, sizes[n]),
                fmt::format("message {} from {}", n, peer));
      }
    }
  }
  for (const Request& request : sends) comm.wait(request);
}

TEST_P(Messages, ArriveInOrderInAllLengths) {
  for (const int ranks : {2, 4})
    EXPECT_THAT(run_threads(ranks, exchange_all, options_of), Each(IsEmpty()));
}

// More than one read takes per turn, with ends of messages anywhere in the read-ahead data.
TEST_P(Messages, SmallOnesThatPileUpArriveWhole) {
  constexpr std::size_t kMessages = 2000;
  const auto length = [](std::size_t n) { return n * 37 % 1500; };
  const auto errors = run_threads(
      2,
      [&](Communicator& comm) {
        if (comm.rank() == 0) {
          std::vector<std::vector<std::byte>> kept;
          std::vector<Request> sends;
          for (std::size_t n = 0; n < kMessages; ++n) {
            kept.push_back(text_of(0, 1, n, length(n)));
            sends.push_back(comm.start_send(std::span<const std::byte>(kept.back()), 1));
          }
          for (const Request& request : sends) comm.wait(request);
          return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        for (std::size_t n = 0; n < kMessages; ++n) {
          std::vector<std::byte> found(length(n));
          comm.wait(comm.start_receive(std::span(found), 0));
          require(found == text_of(0, 1, n, length(n)), fmt::format("message {}", n));
        }
      },
      options_of);
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(Messages, ArriveBetweenProcesses) {
  for (const auto& ended : run_processes(3, exchange_all, options_of))
    EXPECT_TRUE(ended.exited_with(0)) << ended.output;
}

// Both send first, more than any buffer holds: a waiting sender receives.
TEST_P(Messages, TwoThatSendFirstDoNotBlockEachOther) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        const std::vector<float> own(4'000'000, static_cast<float>(comm.rank()));
        std::vector<float> theirs(own.size());
        comm.send(std::span<const float>(own), 1 - comm.rank());
        comm.receive(std::span(theirs), 1 - comm.rank());
        require(theirs.back() == static_cast<float>(1 - comm.rank()), "data");
      },
      options_of);
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Many rounds, so that both sides sleep and wake: some answers arrive at once, some late.
TEST_P(Messages, ComeBackLateOrAtOnce) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        std::int64_t token = 0;
        for (std::int64_t turn = 0; turn < 300; ++turn) {
          if (comm.rank() == turn % 2) {
            if (turn % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
            comm.send(std::span<const std::int64_t>(&turn, 1), 1 - comm.rank());
          } else {
            comm.receive(std::span(&token, 1), 1 - comm.rank());
            require(token == turn, "turn");
          }
        }
      },
      options_of);
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Messages sent before a rank's goodbye are received after it.
TEST_P(Messages, OutliveTheirSender) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        std::vector<std::int32_t> data(5000, 7);
        if (comm.rank() == 0) return comm.send(std::span<const std::int32_t>(data), 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        data.assign(5000, 0);
        comm.receive(std::span(data), 0);
        require(data[4999] == 7, "data");
      },
      options_of);
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(Messages, ThatWillNeverComeAreAnError) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        std::vector<std::int32_t> data(5);
        if (comm.rank() == 1) comm.receive(std::span(data), 0);
      },
      options_of);
  EXPECT_THAT(errors[0], IsEmpty());
  EXPECT_THAT(errors[1], AllOf(HasSubstr("for rank 0 (host"), HasSubstr("that rank has ended"),
                               HasSubstr("send #0 of 5 int32")));
}

// A death in the middle of a message.
TEST_P(Messages, OfADeadRankEndWithItsName) {
  const auto ended = run_processes(
      2,
      [](Communicator& comm) {
        std::vector<std::byte> data(std::size_t{64} << 20);
        if (comm.rank() == 0) {
          // Usually it dies within the first message; the second one never arrives.
          comm.receive(std::span(data), 1);
          return comm.receive(std::span(data), 1);
        }
        const Request sent = comm.start_send(std::span<const std::byte>(data), 0);
        for (int i = 0; i < 20; ++i) comm.progress();
        ::raise(SIGKILL);
      },
      options_of);
  EXPECT_TRUE(ended[0].exited_with(200)) << ended[0].status;
  EXPECT_THAT(ended[0].output, AllOf(HasSubstr("rank 1 (host"), HasSubstr("died")));
}

TEST_P(Messages, OfAnotherLengthAreAnErrorOfBoth) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        std::vector<float> data(100);
        if (comm.rank() == 0) comm.send(std::span<const float>(data), 1);
        if (comm.rank() == 1) comm.receive(std::span(data).first(99), 0);
        comm.barrier();
      },
      options_of);
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("disagree"), HasSubstr("of 100 float32"),
                                 HasSubstr("of 99 float32"))));
}

INSTANTIATE_TEST_SUITE_P(Placements, Messages,
                         ::testing::Values(Placement{"OneNode", 8}, Placement{"TwoNodes", 2},
                                           Placement{"NodeEach", 1}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace tandem::comm
