// The contents of the flight recorder, and that they reach the disk when a job fails or a signal
// requests it.
#include "tandem/comm/failure/flight_recorder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "support/test_support.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/memory.h"
#include "tandem/core/file.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

FlightRecorder::Entry all_reduce(std::uint64_t sequence) {
  FlightRecorder::Entry entry;
  entry.sequence = sequence;
  entry.operation = Operation::kAllReduce;
  entry.type = DataType::kFloat32;
  entry.op = ReduceOp::kSum;
  entry.count = 100 + sequence;
  return entry;
}

TEST(FlightRecorder, ShowsWhatWasCompleteAndWhatWasNot) {
  FlightRecorder recorder;
  recorder.end(recorder.begin(all_reduce(0)));
  FlightRecorder::Entry broadcast;
  broadcast.sequence = 1;
  broadcast.operation = Operation::kBroadcast;
  broadcast.type = DataType::kBfloat16;
  broadcast.root = 3;
  broadcast.count = 7;
  recorder.begin(broadcast);
  const std::string text = recorder.text("rank 2");
  EXPECT_THAT(text, HasSubstr("rank 2\nthe last 2 of 2 operations"));
  EXPECT_THAT(text, ContainsRegex("\n +0 all_reduce +float32 +sum +100 +0 .* complete\n"));
  EXPECT_THAT(text, ContainsRegex("\n +1 broadcast +bfloat16 +- +7 +3 .* not complete\n"));
}

TEST(FlightRecorder, KeepsTheLastThousandInOrder) {
  FlightRecorder recorder;
  for (std::uint64_t i = 0; i < 3000; ++i) recorder.end(recorder.begin(all_reduce(i)));
  const std::string text = recorder.text("x");
  EXPECT_THAT(text, HasSubstr("the last 1024 of 3000 operations"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 + 1024);
  EXPECT_THAT(text, Not(HasSubstr("\n      1975 ")));
  EXPECT_LT(text.find("\n      1976 "), text.find("\n      2999 "));
}

TEST(FlightRecorder, IsReadWhileItIsWritten) {
  FlightRecorder recorder;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop; ++i) recorder.end(recorder.begin(all_reduce(i)));
  });
  while (recorder.operations() < 2 * FlightRecorder::kCapacity) std::this_thread::yield();
  for (int round = 0; round < 20; ++round) {
    std::istringstream lines(recorder.text("x"));
    std::string line;
    for (int i = 0; i < 3; ++i) std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::uint64_t sequence = 0, count = 0;
      std::string operation, type, op;
      words >> sequence >> operation >> type >> op >> count;
      ASSERT_EQ(count, 100 + sequence) << line;  // never a mixture of two entries
    }
  }
  stop = true;
  writer.join();
}

TEST(FlightRecorder, AFolderThatCannotBeWrittenIsReplaced) {
  const FlightRecorder recorder;
  // The same test runs for all transports at the same time.
  const std::string name = fmt::format("test-of-fallback-{}", ::getpid());
  const auto path = recorder.write("/no/such/folder", name, "x");
  EXPECT_EQ(path, std::filesystem::temp_directory_path() / ("tandem-flight-" + name + ".txt"));
  EXPECT_TRUE(std::filesystem::remove(path));
}

class FlightRecords : public ::testing::Test {
 protected:
  testing::OptionsOf options() const {
    return [this](int rank) {
      Options result = testing::test_options(rank);
      result.flight_record_folder = folder_.path();
      return result;
    };
  }
  // The finished files: a file being written has a temporary name, which may be gone before it is
  // read.
  std::vector<std::string> records() const {
    std::vector<std::string> texts;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.path().extension() == ".txt") texts.push_back(read_file(entry.path()));
    }
    return texts;
  }
  tandem::testing::TemporaryFolder folder_;
};

TEST_F(FlightRecords, AreWrittenOnAnErrorWhichNamesTheirPlace) {
  const auto ended = testing::run_processes(
      3,
      [](Communicator& comm) {
        std::vector<float> data(50);
        comm.broadcast(std::span(data), 1);
        comm.all_reduce(std::span(data), ReduceOp::kMax);
        if (comm.rank() == 2) ::raise(SIGKILL);
        comm.barrier();
      },
      options());
  for (const int survivor : {0, 1}) {
    const std::string& message = ended[static_cast<std::size_t>(survivor)].output;
    const std::string before = "; the last operations are in " + folder_.path().native();
    ASSERT_THAT(message, HasSubstr(before));
    EXPECT_THAT(message, HasSubstr(fmt::format("-rank{}-", survivor)));
  }
  ASSERT_EQ(records().size(), 2u);
  for (const std::string& text : records()) {
    EXPECT_THAT(text, AllOf(HasSubstr("flight record of rank "), HasSubstr("rank 2 (host "),
                            HasSubstr("died")));
    EXPECT_THAT(text, ContainsRegex("\n +0 broadcast +float32 +- +50 +1 .* complete\n"));
    EXPECT_THAT(text, ContainsRegex("\n +1 all_reduce +float32 +max +50 +0 .*complete\n"));
  }
}

TEST_F(FlightRecords, AreWrittenWhenASignalAsks) {
  const auto errors = testing::run_threads(
      2,
      [this](Communicator& comm) {
        comm.barrier();
        if (comm.rank() == 0) {
          std::signal(SIGUSR1, [](int) { request_flight_records(); });
          ::raise(SIGUSR1);
        }
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (records().size() < 2 && std::chrono::steady_clock::now() < end) {
          std::this_thread::sleep_for(milliseconds(5));
        }
        comm.barrier();  // the job continues
      },
      options());
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  ASSERT_EQ(records().size(), 2u);
  EXPECT_THAT(records()[0], AllOf(HasSubstr("asked for by a signal"), HasSubstr("barrier")));
}

// The last entries: the bootstrap over a plugin is recorded as well.
std::vector<std::string> last_operations(const Communicator& comm, std::size_t count) {
  const std::vector<std::string> all = comm.flight_record().lines();
  return {all.end() - static_cast<std::ptrdiff_t>(std::min(count, all.size())), all.end()};
}

// A rank that received a message, one that waits for a flag, and one whose message never arrives.
TEST(FlightRecorder, HasMessagesOfBothSidesAndWaitsForFlags) {
  const auto errors = testing::run_threads(2, [](Communicator& comm) {
    NodeMemory memory = share_node_memory(comm, 4096);
    auto& flag = *reinterpret_cast<FlagLine*>(memory.segment(1).data());
    std::vector<float> data(100000);
    if (comm.rank() == 0) {
      comm.send(std::span<const float>(data), 1);
      comm.wait_for_flag(flag, 5, 1, "the other");
      EXPECT_THAT(last_operations(comm, 2),
                  ::testing::ElementsAre("send #0 of 100000 float32 to rank 1",
                                         "wait for flag #5 from rank 1"));
    } else {
      comm.receive(std::span(data), 0);
      std::this_thread::sleep_for(milliseconds(50));  // the other rank sleeps by now
      raise_flag(flag, 5);
      EXPECT_THAT(last_operations(comm, 1),
                  ::testing::ElementsAre("receive #0 of 100000 float32 from rank 0"));
    }
    comm.barrier();
    const Request request = comm.start_receive(std::span(data), 1 - comm.rank());
    EXPECT_EQ(comm.flight_record().lines().back(),
              fmt::format("receive #{} of 100000 float32 from rank {}", comm.rank() == 0 ? 0 : 1,
                          1 - comm.rank()));
    comm.send(std::span<const float>(data), 1 - comm.rank());
    comm.wait(request);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(FlightRecords, ShowWhichMessagesAreComplete) {
  const auto ended = testing::run_processes(
      2,
      [](Communicator& comm) {
        std::vector<float> data(100000);
        comm.barrier();
        if (comm.rank() == 1) {
          comm.receive(std::span(data), 0);
          comm.send(std::span<const float>(data), 0);
          comm.receive(std::span(data).first(1), 0);  // the other rank has it
          comm.life().abort("enough");
          return;
        }
        comm.send(std::span<const float>(data), 1);
        comm.receive(std::span(data), 1);
        const Request never = comm.start_receive(std::span(data).first(3), 1);
        comm.send(std::span<const float>(data).first(1), 1);
        comm.wait(never);
      },
      options());
  EXPECT_TRUE(ended[0].exited_with(200)) << ended[0].output;
  int seen = 0;
  for (const std::string& text : records()) {
    if (text.find("flight record of rank 0") == std::string::npos) continue;
    ++seen;
    EXPECT_THAT(text, ContainsRegex("\n +0 send +float32 +- +100000 +1 [^\n]* complete\n"));
    EXPECT_THAT(text, ContainsRegex("\n +0 receive +float32 +- +100000 +1 [^\n]* complete\n"));
    EXPECT_THAT(text, ContainsRegex("\n +1 receive +float32 +- +3 +1 [^\n]* not complete\n"));
  }
  EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace tandem::comm
