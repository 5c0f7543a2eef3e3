// A node that learns the state of a job while the job trains has the job's bits, or nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <future>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>

#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/core/error.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/elastic/transfer/state_learner.h"
#include "tandem/elastic/transfer/state_source.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"

namespace tandem::optim {

static void PrintTo(OptimizerName name, std::ostream* out) { *out << to_string(name); }

}  // namespace tandem::optim

namespace tandem::elastic {

static void PrintTo(const Notice& notice, std::ostream* out) {
  *out << "message " << static_cast<int>(notice.kind) << ", chunk " << notice.chunk << ", step "
       << notice.step;
}

namespace {

using comm::Communicator;
using comm::testing::PeerInfoBoard;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::size_t kChunks = 6;

nn::ParameterLayout test_layout() {
  nn::ParameterLayout layout;
  layout.add("bias", {300}, nn::ParameterKind::kBias);
  layout.add("fixed", {1000}, nn::ParameterKind::kWeight, /*trainable=*/false);
  layout.add("weight", {600, 600}, nn::ParameterKind::kWeight);
  return layout;
}

float noise(std::uint64_t i, std::uint64_t step) {
  std::uint64_t x = (i + 1) * 0xbf58476d1ce4e5b9ull ^ (step + 1) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93ull;
  return static_cast<float>(static_cast<std::int32_t>(x >> 32)) / 2147483648.0f;
}

// A node: its memory, and what it computes with.
struct TestNode {
  explicit TestNode(optim::OptimizerName name = optim::OptimizerName::kAdamwTorch)
      : optimizer(optim::make_optimizer({.name = name, .weight_decay = 0.01}, layout)),
        model({.elements = layout.size(),
               .bf16_elements = layout.bf16_size(),
               .optimizer_state_elements = optimizer->state_elements(),
               .pieces = optimizer->pieces(),
               .record_values = 1}) {}

  // The weights with which a job begins.
  void fill() {
    for (std::size_t i = 0; i < model.elements(); ++i) model.weights()[i] = noise(i, 0);
    model.set_filled();
  }
  void step(dist::GradientEngine& engine) {
    const std::uint64_t step = model.step() + 1;
    for (std::size_t i = 0; i < model.elements(); ++i) engine.gradient(0)[i] = noise(i, step);
    engine.gradient_ready(0, model.elements());
    engine.finish();
    const double record[] = {static_cast<double>(step)};
    engine.update(
        context, *optimizer,
        {.step = step, .learning_rate = 0.01 / static_cast<double>(step), .gradient_scale = 0.5},
        record);
  }
  bool equals(const TestNode& other) const {
    return std::ranges::equal(model.weights(), other.model.weights()) &&
           std::ranges::equal(model.optimizer_state(), other.model.optimizer_state());
  }

  nn::ParameterLayout layout = test_layout();
  ThreadPool threads{2};
  kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect(), "");
  kernels::Scratch scratch{2};
  kernels::Context context{threads, kernels, scratch};
  std::unique_ptr<optim::Optimizer> optimizer;
  dist::ModelState model;
  std::unique_ptr<Communicator> alone = Communicator::create(rendezvous::Identity{}, {});
};

comm::Options short_waits() {
  comm::Options options = comm::testing::test_options(0);
  options.timeout = milliseconds(60000);
  return options;
}

std::unique_ptr<Communicator> end_of(PeerInfoBoard& board, int rank) {
  return Communicator::create(rank, 2, board.exchange_of(rank), /*loopback_only=*/true,
                              short_waits());
}

// The job trains until the learner has all of a step. A learner has as long for a gradient as the
// job for a step, and a slow build takes its time for both.
void train_job_until_level(TestNode& job, dist::GradientEngine& engine, StateLearner& learner) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!learner.level_at()) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_LT(begin, limit);
    job.step(engine);
    const auto step = std::chrono::steady_clock::now() - begin;
    learner.take(milliseconds(10) + std::chrono::duration_cast<milliseconds>(2 * step));
  }
}

// A job of one node that trains, and a node that learns from it.
class Learners : public ::testing::Test {
 protected:
  void SetUp() override {
    job_.fill();
    engine_.emplace(*job_.alone, job_.context, job_.model,
                    dist::GradientEngineOptions{.logical_shards = 1, .source = source_});
  }
  std::unique_ptr<StateLearner> learner_of(StateSource& source, TestNode& node) {
    boards_.push_back(std::make_unique<PeerInfoBoard>(2));
    PeerInfoBoard& board = *boards_.back();
    source.serve_state(
        [&board](const std::function<bool()>&) { return end_of(board, kSourceRank); });
    return std::make_unique<StateLearner>(end_of(board, kLearnerRank), node.context, node.model,
                                          *node.optimizer);
  }
  void train_until_level(StateLearner& learner) { train_job_until_level(job_, *engine_, learner); }

  TestNode job_;
  StateSource source_{job_.model};
  std::optional<dist::GradientEngine> engine_;
  std::vector<std::unique_ptr<PeerInfoBoard>> boards_;
};

class LearnersOf : public Learners, public ::testing::WithParamInterface<optim::OptimizerName> {};

TEST_P(LearnersOf, BecomeLevelWhileTheJobTrains) {
  TestNode job(GetParam()), node(GetParam());
  job.fill();
  StateSource source(job.model);
  dist::GradientEngine engine(*job.alone, job.context, job.model,
                              {.logical_shards = 1, .source = source});
  const auto learner = learner_of(source, node);
  train_job_until_level(job, engine, *learner);
  for (int i = 0; i < 3; ++i) job.step(engine);
  ASSERT_TRUE(learner->reach(job.model.step()));
  EXPECT_TRUE(node.equals(job));
  EXPECT_FALSE(node.model.filled()) << "what was learned counts";
  EXPECT_EQ(node.model.step(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, LearnersOf,
                         ::testing::Values(optim::OptimizerName::kAdamwTorch,
                                           optim::OptimizerName::kSgd,
                                           optim::OptimizerName::kAdagrad));

TEST_F(Learners, AnUpdateThatTheSourceHasNotSeenIsSentAsItIs) {
  TestNode node;
  const auto learner = learner_of(source_, node);
  train_until_level(*learner);
  // As synchronize_state() does with a state from elsewhere.
  engine_.emplace(*job_.alone, job_.context, job_.model,
                  dist::GradientEngineOptions{.logical_shards = 1, .source = source_});
  for (float& weight : job_.model.weights()) weight += 1;
  job_.model.set_step(job_.model.step() + 1, std::vector<double>{0.0});
  EXPECT_FALSE(learner->reach(job_.model.step())) << "of a state that is not readable yet";
  source_.settled(job_.model.step());
  ASSERT_TRUE(learner->reach(job_.model.step()));
  EXPECT_TRUE(node.equals(job_));
}

TEST_F(Learners, SeveralAtOnce) {
  TestNode one, other;
  const auto first = learner_of(source_, one);
  train_until_level(*first);
  const auto second = learner_of(source_, other);
  EXPECT_EQ(source_.learners(), 2u);
  train_until_level(*second);
  ASSERT_TRUE(first->reach(job_.model.step()));
  ASSERT_TRUE(second->reach(job_.model.step()));
  EXPECT_TRUE(one.equals(job_) && other.equals(job_));
}

// The gradient is overwritten by the next backward, whether it has gone or not.
TEST_F(Learners, GradientsThatHaveNotGoneAreKept) {
  TestNode node;
  const auto learner = learner_of(source_, node);
  train_until_level(*learner);
  const std::uint64_t synchronize_state = *learner->level_at();
  for (int i = 0; i < 2; ++i) job_.step(*engine_);
  ASSERT_TRUE(learner->reach(job_.model.step()));
  EXPECT_GT(job_.model.step(), synchronize_state);
  EXPECT_TRUE(node.equals(job_));
}

// Gradients that find no room are left out, and their chunks are sent again.
TEST_F(Learners, ALearnerThatPausesCatchesUpLater) {
  TestNode node;
  const auto learner = learner_of(source_, node);
  train_until_level(*learner);
  for (int i = 0; i < 6; ++i) job_.step(*engine_);
  while (learner->level_at() != job_.model.step()) {
    learner->take(milliseconds(10));
    if (learner->too_slow()) return;  // it received that
    if (!learner->level_at()) job_.step(*engine_);
  }
  EXPECT_TRUE(node.equals(job_));
}

// The rest waits in memory, and no more than two gradients of the model.
TEST_F(Learners, ThatTakeNothingCostTwoGradients) {
  TestNode node;
  const auto learner = learner_of(source_, node);
  train_until_level(*learner);
  std::size_t most = 0;
  for (int i = 0; i < 60; ++i) {
    job_.step(*engine_);
    most = std::max(most, source_.waiting_gradients());
  }
  EXPECT_GT(most, kChunks);
  EXPECT_LE(most, 2 * kChunks);
}

TEST_F(Learners, NoticeThatTheSourceIsGone) {
  TestNode node, job;
  job.fill();
  auto source = std::make_unique<StateSource>(job.model);
  const auto learner = learner_of(*source, node);
  source.reset();
  EXPECT_THROW(while (true) learner->take(milliseconds(100)), CommError);
  EXPECT_FALSE(learner->reach(1));
}

TEST_F(Learners, ThatAreGoneAreForgotten) {
  TestNode node;
  auto learner = learner_of(source_, node);
  train_until_level(*learner);
  learner.reset();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (source_.learners() > 0 && std::chrono::steady_clock::now() < limit) job_.step(*engine_);
  EXPECT_EQ(source_.learners(), 0u);
}

// Neither Adafactor's state, nor the weights of a job that trains nothing, nor more learners than
// there is memory for.
TEST_F(Learners, AreNotServedWhereThatCannotBe) {
  TestNode adafactor(optim::OptimizerName::kAdafactor);
  EXPECT_FALSE(can_be_learned(adafactor.model));
  const dist::ModelState untrained({.elements = job_.model.elements()});
  EXPECT_FALSE(can_be_learned(untrained));
  std::atomic<bool> go{false};
  StateSource source(job_.model);
  for (std::size_t i = 0; i < StateSource::kMostLearners + 3; ++i) {
    source.serve_state([&](const std::function<bool()>& over) -> std::unique_ptr<Communicator> {
      while (!go && !over()) std::this_thread::sleep_for(milliseconds(1));
      raise<CommError>("no node came");
    });
  }
  EXPECT_EQ(source.learners(), StateSource::kMostLearners);
  go = true;
}

// ---- sources that send invalid messages ----

using BadTransfer = std::pair<Notice, std::string_view>;

class BadTransfers : public ::testing::TestWithParam<BadTransfer> {};

TEST_P(BadTransfers, EndTheTransfer) {
  TestNode node;
  PeerInfoBoard board(2);
  std::thread liar([&] {
    const auto communicator = end_of(board, kSourceRank);
    Notice handshake{TransferMessage::kHandshake, node.model.elements(),
                     node.model.optimizer_state().size()};
    Notice notice = GetParam().first;
    if (notice.kind != TransferMessage::kHandshake)
      communicator->send(std::span<const std::uint64_t>(words_of(handshake)), kLearnerRank);
    communicator->send(std::span<const std::uint64_t>(words_of(notice)), kLearnerRank);
    try {
      while (true) communicator->progress(milliseconds(10));
    } catch (const CommError&) {
    }
  });
  {
    StateLearner learner(end_of(board, kLearnerRank), node.context, node.model, *node.optimizer);
    try {
      while (true) learner.take(milliseconds(100));
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(GetParam().second)));
    }
  }
  liar.join();
  EXPECT_FALSE(node.model.filled());
}

INSTANTIATE_TEST_SUITE_P(
    All, BadTransfers,
    ::testing::Values(
        BadTransfer(Notice{TransferMessage::kHandshake, 5, 10}, "the sender has 5 weights"),
        BadTransfer(Notice{TransferMessage::kChunk, kChunks, 1}, "chunk 6 of a state of 6"),
        BadTransfer(Notice{TransferMessage::kChunk, ~std::uint64_t{0}, 1},
                    "chunk 18446744073709551615"),
        BadTransfer(Notice{TransferMessage::kGradient, kChunks + 1, 1}, "chunk 7 of a state of 6"),
        BadTransfer(Notice{TransferMessage::kGradient, 0, 1},
                    "the gradient of step 1 came for a chunk"),
        BadTransfer(Notice{static_cast<TransferMessage>(77), 0, 1}, "invalid message (77)")));

// The messages of a source after the first chunk: chunks as they are after a step, and gradients of
// steps.
struct Stream {
  std::vector<Notice> sent;
  const char* refused;  // with these words; empty: it is not
};

void PrintTo(const Stream& stream, std::ostream* out) {
  for (const Notice& notice : stream.sent) {
    *out << (&notice == &stream.sent.front() ? "" : ", ")
         << (notice.kind == TransferMessage::kChunk ? "chunk of " : "gradient of ") << notice.step;
  }
}

class Streams : public ::testing::TestWithParam<Stream> {};

// Lost, repeated or out of order.
TEST_P(Streams, AreTakenInOrderOnly) {
  TestNode node;
  PeerInfoBoard board(2);
  std::atomic<bool> sent = false;
  std::promise<void> received;
  std::thread source([&] {
    const auto communicator = end_of(board, kSourceRank);
    const std::vector<float> values(3 * dist::ModelState::kChunk, 0.5f);
    const auto send_notice = [&](Notice notice) {
      communicator->send(std::span<const std::uint64_t>(words_of(notice)), kLearnerRank);
    };
    try {
      send_notice({TransferMessage::kHandshake, node.model.elements(),
                   node.model.optimizer_state().size()});
      for (const Notice& notice : GetParam().sent) {
        send_notice(notice);
        const std::size_t count = notice.kind == TransferMessage::kChunk ? 3 : 1;
        communicator->send(std::span(values).first(count * dist::ModelState::kChunk), kLearnerRank);
      }
    } catch (const CommError&) {  // the learner has received enough
    }
    sent = true;
    received.get_future().wait();  // an end that comes early is all that the learner would see
  });
  std::string refused;
  {
    StateLearner learner(end_of(board, kLearnerRank), node.context, node.model, *node.optimizer);
    try {
      while (learner.take(milliseconds(200)) || !sent) {
      }
    } catch (const CommError& error) {
      refused = error.what();
    }
  }
  received.set_value();
  source.join();
  if (*GetParam().refused == 0) {
    EXPECT_EQ(refused, "");
  } else {
    EXPECT_THAT(refused, HasSubstr(GetParam().refused));
  }
  EXPECT_FALSE(node.model.filled());
}

constexpr Notice kChunkOf5{TransferMessage::kChunk, 0, 5};
Notice gradient_of(std::uint64_t step) { return {TransferMessage::kGradient, 0, step}; }

INSTANTIATE_TEST_SUITE_P(
    All, Streams,
    ::testing::Values(
        Stream{{kChunkOf5, gradient_of(6), gradient_of(7)}, ""},
        Stream{{kChunkOf5, kChunkOf5, gradient_of(6)}, ""},
        Stream{{kChunkOf5, gradient_of(6), gradient_of(6)}, "the gradient of step 6 came for"},
        Stream{{kChunkOf5, gradient_of(7)}, "the gradient of step 7 came for"},
        Stream{{kChunkOf5, gradient_of(5)}, "the gradient of step 5 came for"},
        Stream{{gradient_of(1), kChunkOf5}, "the gradient of step 1 came for"},
        Stream{{kChunkOf5, gradient_of(~std::uint64_t{0})}, "came for a chunk of another"}));

// ---- the first view ----

// A node that has trained meets one that has learned from it, in a view of both.
struct View {
  bool moves = false;  // weights
  bool level_before = true;
  std::function<void(TestNode&)> before_it = {};  // at the node that has learned
};

void meet(const View& view) {
  TestNode job, node;
  job.fill();
  StateSource source(job.model);
  PeerInfoBoard board(2);
  std::atomic<bool> synchronize_state{false};
  std::atomic<std::size_t> arrivals{0};
  const auto train = [&] {
    dist::GradientEngine engine(*job.alone, job.context, job.model,
                                {.logical_shards = 1, .source = source});
    source.serve_state([&](const std::function<bool()>&) { return end_of(board, kSourceRank); });
    do {
      job.step(engine);
      std::this_thread::sleep_for(milliseconds(20));  // for the learner
    } while (!synchronize_state);
  };
  const auto errors = comm::testing::run_threads(
      2,
      [&](Communicator& communicator) {
        const bool trains = communicator.rank() == 0;
        std::optional<StateLearner> learner;
        if (trains) {
          train();
        } else {
          learner.emplace(end_of(board, kLearnerRank), node.context, node.model, *node.optimizer);
          while (view.level_before && !learner->level_at()) learner->take(milliseconds(10));
          synchronize_state = true;
          if (view.before_it) view.before_it(node);
        }
        TestNode& own = trains ? job : node;
        dist::GradientEngineOptions options;
        if (trains) options.source = source;
        dist::GradientEngine engine(communicator, own.context, own.model, options);
        const dist::SyncResult synced = engine.synchronize_state(
            {.training_progress = trains ? "progress" : "",
             .arrives =
                 [&](const std::string& training_progress) {
                   if (training_progress == "progress" && !node.model.filled()) ++arrivals;
                 },
             .learner = trains ? nullptr : &*learner});
        EXPECT_EQ(synced.moved, view.moves);
        EXPECT_EQ(synced.step, job.model.step());
      },
      [](int rank) {
        comm::Options options = short_waits();
        options.node_id = rank == 0 ? "a" : "b";
        return options;
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(arrivals, 1u) << "the progress comes once, before the state counts";
  EXPECT_TRUE(node.model.filled() && node.model.step() == job.model.step());
  EXPECT_TRUE(node.equals(job));
  EXPECT_EQ(node.model.record(), job.model.record());
  const auto bits = [](bfloat16 value) { return std::bit_cast<std::uint16_t>(value); };
  for (std::size_t i = 0; i < node.model.bf16_weights().size(); ++i)
    ASSERT_EQ(bits(node.model.bf16_weights()[i]), bits(to_bfloat16(node.model.weights()[i]))) << i;
}

TEST(LearnersView, WhatWasLearnedCounts) { meet({}); }

TEST(LearnersView, WhatWasLearnedWrongIsSentAgain) {
  meet({.moves = true, .before_it = [](TestNode& node) { node.model.optimizer_state()[7] += 1; }});
}

TEST(LearnersView, ANodeThatHasNotLearnedAllGetsAll) {
  meet({.moves = true, .level_before = false});
}

// ---- what outlives a view ----

TEST(MessageMemory, IsTouchedBeforeAViewAndKeptForTheNextOne) {
  constexpr std::size_t kElements = std::size_t{3} << 20;
  dist::MessageMemory memory;
  memory.touch(kElements);
  const std::span<std::byte> first = memory.take(kElements * sizeof(float));
  EXPECT_EQ(first.size(), kElements * sizeof(float));
  EXPECT_EQ(first.front(), std::byte{1}) << "it was not touched, or is not what was touched";
  first.front() = std::byte{7};
  EXPECT_EQ(memory.take(1000).data(), first.data());
  EXPECT_EQ(memory.take(kElements * sizeof(float)).front(), std::byte{7});
  EXPECT_TRUE(memory.take(0).empty());
  EXPECT_EQ(memory.take(1000).front(), std::byte{0}) << "it was not given back";
}

}  // namespace
}  // namespace tandem::elastic
