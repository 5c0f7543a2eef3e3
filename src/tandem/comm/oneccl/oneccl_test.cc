// oneCCL's interface: each operation in the forms that programs use, against the expected results.
// Ranks are threads that bootstrap at the address of a kvs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <oneapi/ccl.hpp>
#include <thread>

namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
using Ints = std::vector<int>;
using Counts = std::vector<std::size_t>;

// Runs `body` on threads, each with its kvs.
void run_kvs(const std::function<void(std::shared_ptr<ccl::kvs>, int rank)>& body) {
  const auto main_kvs = ccl::create_main_kvs();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back(
        [&, rank] { body(rank == 0 ? main_kvs : ccl::create_kvs(main_kvs->get_address()), rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

void run_ranks(const std::function<void(const ccl::communicator&, int rank)>& body) {
  run_kvs([&](const std::shared_ptr<ccl::kvs>& kvs, int rank) {
    ccl::init();
    const auto comm = ccl::create_communicator(kRanks, rank, kvs);
    EXPECT_EQ(comm.rank(), rank);
    EXPECT_EQ(comm.size(), kRanks);
    body(comm, rank);
  });
}

TEST(OneCcl, AllReduceInEveryForm) {
  run_ranks([](const ccl::communicator& comm, int rank) {
    const Ints send(1000, rank + 1);
    Ints recv(1000);
    ccl::allreduce(send.data(), recv.data(), send.size(), ccl::reduction::sum, comm).wait();
    EXPECT_THAT(recv, Each(6));
    const auto stream = ccl::create_stream();
    ccl::allreduce(send.data(), recv.data(), send.size(), ccl::reduction::max, comm, stream).wait();
    EXPECT_THAT(recv, Each(3));
    auto attr = ccl::create_operation_attr<ccl::allreduce_attr>(
        ccl::attr_val<ccl::operation_attr_id::synchronous>(true));
    attr.set<ccl::operation_attr_id::match_id>(std::string("name"));
    attr.set<ccl::operation_attr_id::priority>(3);
    const ccl::event done = ccl::allreduce(send.data(), recv.data(), send.size(),
                                           ccl::datatype::int32, ccl::reduction::min, comm, attr);
    EXPECT_THAT(recv, Each(1));  // without a wait
    EXPECT_TRUE(done.test());
    std::vector<ccl::event> before;
    before.push_back(ccl::allreduce(send.data(), recv.data(), 10, ccl::reduction::prod, comm));
    Ints after(10);
    ccl::allreduce(recv.data(), after.data(), 10, ccl::reduction::sum, comm, ccl::default_stream,
                   ccl::default_allreduce_attr, before)
        .wait();
    EXPECT_THAT(after, Each(18));
  });
}

TEST(OneCcl, EventsEndInAnyOrder) {
  run_ranks([](const ccl::communicator& comm, int rank) {
    std::vector<std::vector<double>> data(8, std::vector<double>(5000, rank));
    std::vector<ccl::event> events(data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      events[i] =
          ccl::allreduce(data[i].data(), data[i].data(), data[i].size(), ccl::reduction::sum, comm);
    }
    for (std::size_t i = data.size(); i-- > 0;) {
      while (!events[i].test()) std::this_thread::yield();
      EXPECT_THAT(data[i], Each(3.0));
    }
    Ints dropped(5000, 1);
    { ccl::allreduce(dropped.data(), dropped.data(), dropped.size(), ccl::reduction::sum, comm); }
    EXPECT_THAT(dropped, Each(3));
  });
}

TEST(OneCcl, ReduceReduceScatterAndBroadcast) {
  run_ranks([](const ccl::communicator& comm, int rank) {
    const Ints own{rank, rank + 10, rank + 20};
    Ints all(3, -1);
    ccl::reduce(own.data(), all.data(), 3, ccl::reduction::sum, 1, comm).wait();
    EXPECT_THAT(all, rank == 1 ? ElementsAre(3, 33, 63) : ElementsAre(-1, -1, -1));
    int block = 0;
    ccl::reduce_scatter(own.data(), &block, 1, ccl::reduction::sum, comm).wait();
    EXPECT_EQ(block, 3 + 30 * rank);
    std::vector<std::uint16_t> half(4, static_cast<std::uint16_t>(rank + 7));
    ccl::broadcast(half.data(), half.size(), 2, comm).wait();
    EXPECT_THAT(half, Each(9));
    Ints from{rank, rank}, to(2);
    ccl::broadcast(from.data(), to.data(), 2, 1, comm).wait();
    EXPECT_THAT(to, Each(1));
    ccl::barrier(comm);
    ccl::barrier(comm, ccl::create_stream());
  });
}

TEST(OneCcl, Gathers) {
  run_ranks([](const ccl::communicator& comm, int rank) {
    const Counts counts{1, 2, 3};
    const Ints own(counts[static_cast<std::size_t>(rank)], rank + 1);
    Ints all(6);
    ccl::allgatherv(own.data(), own.size(), all.data(), counts, comm).wait();
    EXPECT_THAT(all, ElementsAre(1, 2, 2, 3, 3, 3));
    Ints a(1), b(2), c(3);
    const std::vector<int*> blocks{a.data(), b.data(), c.data()};
    ccl::allgatherv(own.data(), own.size(), blocks, counts, comm).wait();
    EXPECT_THAT(a, Each(1));
    EXPECT_THAT(b, Each(2));
    EXPECT_THAT(c, Each(3));
    Ints three(3);
    ccl::allgather(&rank, three.data(), 1, comm).wait();
    EXPECT_THAT(three, ElementsAre(0, 1, 2));
    EXPECT_THROW(ccl::allgatherv(own.data(), own.size() + 1, all.data(), counts, comm),
                 ccl::invalid_argument);
  });
}

TEST(OneCcl, Exchanges) {
  run_ranks([](const ccl::communicator& comm, int rank) {
    Ints send{10 * rank, 10 * rank + 1, 10 * rank + 2}, recv(3);
    ccl::alltoall(send.data(), recv.data(), 1, comm).wait();
    EXPECT_THAT(recv, ElementsAre(rank, 10 + rank, 20 + rank));
    ccl::alltoall(send.data(), send.data(), 1, comm).wait();
    EXPECT_EQ(send, recv);
    // Rank r sends s + 1 numbers to rank s.
    const Counts send_counts{1, 2, 3};
    const Counts recv_counts(3, static_cast<std::size_t>(rank + 1));
    const Ints out(6, rank);
    Ints in(3 * recv_counts[0]);
    ccl::alltoallv(out.data(), send_counts, in.data(), recv_counts, comm).wait();
    for (std::size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(in[i], static_cast<int>(i / recv_counts[0]));
    }
    std::vector<Ints> parts(3, Ints(recv_counts[0])), sources{{rank}, {rank, rank}, {rank, 9, 9}};
    ccl::alltoallv(
        std::vector<int*>{sources[0].data(), sources[1].data(), sources[2].data()}, send_counts,
        std::vector<int*>{parts[0].data(), parts[1].data(), parts[2].data()}, recv_counts, comm)
        .wait();
    for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(parts[s][0], static_cast<int>(s));
  });
}

TEST(OneCcl, Messages) {
  run_ranks([](const ccl::communicator& comm, int rank) {
    const int next = (rank + 1) % kRanks, before = (rank + 2) % kRanks;
    int got = -1;
    ccl::group_start();
    const ccl::event sent = ccl::send(&rank, 1, next, comm);
    const ccl::event received = ccl::recv(&got, 1, before, comm);
    ccl::group_end();
    sent.wait();
    received.wait();
    EXPECT_EQ(got, before);
  });
}

TEST(OneCcl, SplitsAndSeveralCommunicatorsOfOneKvs) {
  run_kvs([](const std::shared_ptr<ccl::kvs>& kvs, int rank) {
    auto first = std::make_unique<ccl::communicator>(ccl::create_communicator(kRanks, rank, kvs));
    const auto second =
        ccl::create_communicator(kRanks, rank, ccl::create_device(), ccl::create_context(), kvs);
    const auto part = first->split(
        ccl::create_comm_split_attr(ccl::attr_val<ccl::comm_split_attr_id::color>(rank % 2)));
    first.reset();  // the part continues
    EXPECT_EQ(part.size(), rank % 2 == 0 ? 2 : 1);
    int sum = 1;
    ccl::allreduce(&sum, &sum, 1, ccl::reduction::sum, part).wait();
    EXPECT_EQ(sum, part.size());
    const auto reversed = ccl::split_communicator(second, 0, -rank);
    EXPECT_EQ(reversed.rank(), kRanks - 1 - rank);
  });
}

// A store supplied by the program.
class Store : public ccl::kvs_interface {
 public:
  std::vector<char> get(const std::string& key) override {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return values_.count(key) > 0; }));
    return values_[key];
  }
  void set(const std::string& key, const std::vector<char>& data) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    values_[key] = data;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<char>> values_;
};

TEST(OneCcl, RanksMeetThroughTheProgramsStore) {
  const auto store = std::make_shared<Store>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int turn = 0; turn < 2; ++turn) {
        const auto comm = ccl::create_communicator(kRanks, rank, store);
        int sum = rank;
        ccl::allreduce(&sum, &sum, 1, ccl::reduction::sum, comm).wait();
        EXPECT_EQ(sum, 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OneCcl, UncoveredFunctionsAreReported) {
  const auto kvs = ccl::create_main_kvs();
  const auto comm = ccl::create_communicator(1, 0, kvs);
  std::uint16_t one = 1;
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const ccl::unsupported& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message([&] { ccl::allreduce(&one, &one, 1, ccl::reduction::sum, comm); }),
              HasSubstr("try int32"));
  int number = 1;
  EXPECT_THAT(message([&] { ccl::allreduce(&number, &number, 1, ccl::reduction::custom, comm); }),
              HasSubstr("of a program's own"));
  EXPECT_THAT(message([&] { kvs->get("key"); }), HasSubstr("kvs_interface"));
  EXPECT_THROW(ccl::broadcast(&number, 1, 4, comm), ccl::invalid_argument);
  ccl::communicator none;
  EXPECT_THROW(none.rank(), ccl::exception);
}

}  // namespace
