// Rule R3 of docs/elastic_protocol.md: an update interrupted at any point can be finished by the
// remaining ranks, with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <thread>

#include "support/require.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/core/error.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"

namespace tandem::dist {
namespace {

using comm::Communicator;
using comm::testing::run_processes;
using std::chrono::milliseconds;
using tandem::testing::require;

constexpr int kShards = 4;
constexpr std::uint64_t kSteps = 4;
constexpr std::uint64_t kFatalStep = 2;

// Some four chunks, in parameters of all kinds and sizes; none ends with a piece.
nn::ParameterLayout test_layout() {
  nn::ParameterLayout layout;
  layout.add("head", {2, 300}, nn::ParameterKind::kWeight);
  layout.add("bias", {300}, nn::ParameterKind::kBias);
  for (int i = 0; i < 5; ++i)
    layout.add("weight" + std::to_string(i), {200, 230}, nn::ParameterKind::kWeight);
  layout.add("fixed", {1000}, nn::ParameterKind::kWeight, /*trainable=*/false);
  layout.add("table", {100, 500}, nn::ParameterKind::kEmbedding);
  return layout;
}

float noise(std::uint64_t shard, std::uint64_t i, std::uint64_t step) {
  std::uint64_t x = (shard + 1) * 0x9e3779b97f4a7c15ull ^ (i + 1) * 0xbf58476d1ce4e5b9ull ^
                    (step + 1) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  return static_cast<float>(static_cast<std::int32_t>(x >> 32)) / 2147483648.0f;
}

struct Machine {
  ThreadPool threads{2};
  kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect(), "");
  kernels::Scratch scratch{2};
  kernels::Context context{threads, kernels, scratch};
};

// Where in the handling of a piece a rank dies.
enum class Moment { kBefore, kHalfOverwritten, kOverwritten, kDone };
constexpr Moment kMoments[] = {Moment::kBefore, Moment::kHalfOverwritten, Moment::kOverwritten,
                               Moment::kDone};

// The optimizer; when armed, it ends its process at one moment of one of the pieces that it does.
class MortalOptimizer : public optim::Optimizer {
 public:
  explicit MortalOptimizer(std::unique_ptr<optim::Optimizer> real) : real_(std::move(real)) {}
  void arm(int piece, Moment moment) {
    pieces_left_ = piece;
    moment_ = moment;
  }
  void disarm() { pieces_left_ = -1; }
  std::size_t state_elements() const override { return real_->state_elements(); }
  std::vector<optim::StateTensor> state_tensors() const override { return real_->state_tensors(); }
  optim::UpdatePieces pieces() const override { return real_->pieces(); }
  void step(const kernels::Context& context, const optim::OptimizerStep& step,
            const optim::ParameterArenas& arenas, std::size_t begin, std::size_t end,
            optim::UpdateGuard* guard) override {
    MortalGuard mortal(*this, guard);
    real_->step(context, step, arenas, begin, end, guard == nullptr ? nullptr : &mortal);
  }

 private:
  class MortalGuard : public optim::UpdateGuard {
   public:
    MortalGuard(MortalOptimizer& owner, optim::UpdateGuard* real) : owner_(owner), real_(real) {}
    std::size_t begin(int thread, const optim::UpdatePiece& piece) override {
      if (owner_.pieces_left_ == 0 && owner_.moment_ == Moment::kBefore) ::raise(SIGKILL);
      const std::size_t already = real_->begin(thread, piece);
      if (already == piece.elements) return already;
      const bool last = owner_.pieces_left_ >= 0 && owner_.pieces_left_-- == 0;
      if (last) fatal_ = piece.index;
      if (last && owner_.moment_ == Moment::kHalfOverwritten)
        die_in_a_block(thread, piece, already);
      return already;
    }
    kernels::UndoLog undo_log(int thread) override { return real_->undo_log(thread); }
    void keep_whole(int thread, const optim::UpdatePiece& piece) override {
      real_->keep_whole(thread, piece);
    }
    void done(int thread, const optim::UpdatePiece& piece) override {
      const bool last = fatal_ == piece.index;
      if (last && owner_.moment_ == Moment::kOverwritten) ::raise(SIGKILL);
      real_->done(thread, piece);
      if (last) ::raise(SIGKILL);
    }

   private:
    // As a kernel that overwrites the first block that is left.
    void die_in_a_block(int thread, const optim::UpdatePiece& piece, std::size_t begin) {
      std::size_t count = piece.elements - begin;
      if (owner_.pieces().largest_whole > 0) {
        real_->keep_whole(thread, piece);
      } else {
        const kernels::UndoLog log = real_->undo_log(thread);
        const std::size_t half = log.next_half();
        count = std::min(count, kernels::UndoLog::kBlock);
        float* to = log.values + half * kernels::UndoLog::kHalf;
        for (const std::span<float> values : piece.overwritten) {
          std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), count, to);
          to += kernels::UndoLog::kBlock;
        }
        log.keep(begin, count, half);
      }
      for (const std::span<float> values : piece.overwritten) {
        if (begin < values.size())
          std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(begin),
                      (std::min(values.size() - begin, count) + 1) / 2, 1e30f);
      }
      ::raise(SIGKILL);
    }

    MortalOptimizer& owner_;
    optim::UpdateGuard* real_;
    std::atomic<std::size_t> fatal_{static_cast<std::size_t>(-1)};
  };

  std::unique_ptr<optim::Optimizer> real_;
  std::atomic<int> pieces_left_{-1};
  Moment moment_ = Moment::kBefore;
};

std::uint64_t hash_of(const ModelState& state) {
  std::uint64_t hash = 1469598103934665603ull;
  const auto mix = [&](std::uint32_t bits) { hash = (hash ^ bits) * 1099511628211ull; };
  for (const float value : state.weights()) mix(std::bit_cast<std::uint32_t>(value));
  for (const float value : state.optimizer_state()) mix(std::bit_cast<std::uint32_t>(value));
  for (const bfloat16 value : state.bf16_weights()) mix(std::bit_cast<std::uint16_t>(value));
  return hash;
}

// One rank's part of a job.
class UpdateJob {
 public:
  UpdateJob(Communicator& communicator, optim::OptimizerName name)
      : optimizer_(optim::make_optimizer({.name = name, .weight_decay = 0.01}, layout_)),
        state_(communicator, {.elements = layout_.size(),
                              .bf16_elements = layout_.bf16_size(),
                              .optimizer_state_elements = optimizer_.state_elements(),
                              .pieces = optimizer_.pieces(),
                              .threads = 2,
                              .record_values = kShards}) {
    join(communicator);
    if (engine_->node_leader()) {
      for (std::size_t i = 0; i < layout_.size(); ++i) state_.weights()[i] = noise(99, i, 0);
      for (std::size_t i = 0; i < state_.bf16_weights().size(); ++i)
        state_.bf16_weights()[i] = to_bfloat16(state_.weights()[i]);
    }
    engine_->broadcast_weights();
  }

  void leave() { engine_.reset(); }
  void join(Communicator& communicator) {
    engine_.emplace(communicator, machine_.context, state_,
                    GradientEngineOptions{.logical_shards = kShards,
                                          .bucket_elements = 4 * ModelState::kChunk});
  }
  void step(std::uint64_t step) {
    std::vector<double> own, all;
    for (std::size_t shard = engine_->shards().begin; shard < engine_->shards().end; ++shard) {
      const auto gradient = engine_->gradient(shard);
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = noise(shard, i, step);
      engine_->gradient_ready(shard, gradient.size());
      own.push_back(loss(shard, step));
    }
    engine_->finish();
    engine_->gather(own, all);
    engine_->update(machine_.context, optimizer_, update(step), all);
  }
  static double loss(std::size_t shard, std::uint64_t step) {
    return 1.0 / static_cast<double>(7 * step + shard + 1);
  }
  bool finish() { return engine_->finish_update(machine_.context, optimizer_); }
  std::uint64_t synchronize_state() { return engine_->synchronize_state().step; }
  ModelState& state() { return state_; }
  MortalOptimizer& optimizer() { return optimizer_; }

 private:
  static optim::OptimizerStep update(std::uint64_t step) {
    return {.step = step, .learning_rate = 1e-2 / static_cast<double>(step), .gradient_scale = 0.5};
  }

  Machine machine_;
  nn::ParameterLayout layout_ = test_layout();
  MortalOptimizer optimizer_;
  ModelState state_;
  std::optional<GradientEngine> engine_;
};

// The hash after each step, of one rank alone.
std::vector<std::uint64_t> reference(optim::OptimizerName name) {
  const auto alone = Communicator::create(rendezvous::Identity{}, {});
  UpdateJob job(*alone, name);
  std::vector<std::uint64_t> hashes = {hash_of(job.state())};
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    job.step(step);
    hashes.push_back(hash_of(job.state()));
  }
  return hashes;
}

// Where a rank dies, if it gets there: with several, one may learn of another's death before. With
// `while_finishing` it dies not in the update itself, but in finishing it for others.
struct Death {
  int piece = 0;
  Moment moment = Moment::kBefore;
  bool while_finishing = false;
};
using Deaths = std::map<int, Death>;  // by rank

struct World {
  const char* nodes;  // a letter per rank
  optim::OptimizerName optimizer = optim::OptimizerName::kAdamwTorch;
};

// Until all ranks that are to die have died: meets the others that are left and finishes the
// update.
void recover(UpdateJob& job, Communicator& communicator, std::unique_ptr<Communicator>& rest,
             const std::vector<std::uint64_t>& expected, const Death* own) {
  job.leave();
  rest = (rest ? *rest : communicator).shrink();
  job.join(*rest);
  const std::uint64_t before = job.state().step();
  require(before + 1 == kFatalStep || before == kFatalStep, "the step before");
  if (!job.state().unfinished_update())
    require(hash_of(job.state()) == expected[before], "weights of no step");
  rest->barrier();
  if (own != nullptr && own->while_finishing) job.optimizer().arm(own->piece, own->moment);
  const bool finished = job.finish();
  require(job.state().step() == before + (finished ? 1 : 0), "the step after");
  require(hash_of(job.state()) == expected[job.state().step()], "weights after finishing");
  rest->barrier();
  const std::uint64_t now = job.synchronize_state();
  require(hash_of(job.state()) == expected[now], "weights on the level of all");
  if (now == kFatalStep) {
    const std::vector<double> record = job.state().record();
    for (std::size_t shard = 0; shard < kShards; ++shard)
      require(record[shard] == UpdateJob::loss(shard, now), "record");
  }
  rest->barrier();
}

void live(Communicator& communicator, const World& world, const Deaths& deaths,
          const std::vector<std::uint64_t>& expected) {
  UpdateJob job(communicator, world.optimizer);
  const auto found = deaths.find(communicator.rank());
  const Death* own = found == deaths.end() ? nullptr : &found->second;
  std::unique_ptr<Communicator> rest;
  while (job.state().step() < kSteps) {
    const std::uint64_t step = job.state().step() + 1;
    try {
      if (step == kFatalStep && own != nullptr && !own->while_finishing)
        job.optimizer().arm(own->piece, own->moment);
      job.step(step);
      require(hash_of(job.state()) == expected[step], "weights after a step");
      continue;
    } catch (const CommError&) {
    }
    job.optimizer().disarm();  // it has learnt of another's death before its own
    // Each round but the last fails because a rank has died in it.
    for (std::size_t rounds = 0;; ++rounds) {
      try {
        recover(job, communicator, rest, expected, own);
        break;
      } catch (const CommError&) {
        if (rounds == deaths.size()) throw;
      }
    }
  }
  require(hash_of(job.state()) == expected[kSteps], "final weights");
  (rest ? *rest : communicator).close();
}

void expect_recovery(const World& world, const Deaths& deaths,
                     const std::vector<std::uint64_t>& expected) {
  const int ranks = static_cast<int>(std::strlen(world.nodes));
  const auto ended = run_processes(
      ranks, [&](Communicator& communicator) { live(communicator, world, deaths, expected); },
      [&](int rank) {
        comm::Options options = comm::testing::test_options(rank);
        options.node_id = std::string(1, world.nodes[rank]);
        return options;
      });
  std::string text = world.nodes;
  for (const auto& [rank, death] : deaths) {
    text += fmt::format(", rank {} at piece {}, moment {}{}", rank, death.piece,
                        static_cast<int>(death.moment), death.while_finishing ? ", finishing" : "");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& one = ended[static_cast<std::size_t>(rank)];
    const bool killed = WIFSIGNALED(one.status) && WTERMSIG(one.status) == SIGKILL;
    const bool may_live = !deaths.contains(rank) || deaths.size() > 1;
    EXPECT_TRUE((killed && deaths.contains(rank)) || (one.exited_with(0) && may_live))
        << text << ": rank " << rank << ": " << one.output;
  }
}

// Pieces of the rank of a pair that has fewer.
constexpr int kPiecesOfRank = 8;

TEST(UpdateFaults, ARankKilledAtEveryPieceAndMoment) {
  const World world{"aabb"};
  const auto expected = reference(world.optimizer);
  for (const int rank : {0, 1}) {  // the node's leader, and another
    for (int piece = 0; piece < kPiecesOfRank; ++piece) {
      for (const Moment moment : kMoments)
        expect_recovery(world, {{rank, {piece, moment}}}, expected);
    }
  }
}

TEST(UpdateFaults, SeveralAtOnce) {
  const World world{"aabb"};
  const auto expected = reference(world.optimizer);
  const std::vector<std::vector<int>> groups = {{0, 3}, {1, 2}, {0, 1}, {2, 3}, {0, 1, 2}};
  for (const std::vector<int>& group : groups) {
    for (int piece = 0; piece < kPiecesOfRank; piece += 2) {
      Deaths deaths;
      for (const int rank : group) {
        const int own = (piece + 3 * rank) % kPiecesOfRank;
        deaths[rank] = {own, rank % 2 == 0 ? Moment::kHalfOverwritten : Moment::kOverwritten};
      }
      expect_recovery(world, deaths, expected);
    }
  }
}

TEST(UpdateFaults, TheFinishingRankMayDieOfItToo) {
  const World world{"aaab"};
  const auto expected = reference(world.optimizer);
  for (int piece = 0; piece < 4; ++piece) {
    for (const Moment moment : kMoments) {
      expect_recovery(world, {{1, {piece, Moment::kHalfOverwritten}}, {0, {0, moment, true}}},
                      expected);
    }
  }
}

TEST(UpdateFaults, AParameterAtATime) {
  const World world{"aabb", optim::OptimizerName::kAdafactor};
  const auto expected = reference(world.optimizer);
  for (const int rank : {0, 1}) {
    for (int piece = 0; piece < 3; ++piece) {
      for (const Moment moment : kMoments)
        expect_recovery(world, {{rank, {piece, moment}}}, expected);
    }
  }
}

// Memory that processes share, with the journal of an update over it.
class SharedUpdate {
 public:
  SharedUpdate(optim::Optimizer& optimizer, std::size_t elements, int threads)
      : elements_(elements), pieces_(optimizer.pieces()) {
    const std::size_t slot = UndoSlot::bytes(pieces_);
    const std::size_t floats = elements_ + optimizer.state_elements();
    const std::size_t slots_at = align_up(sizeof(UpdateHeader), kTensorAlignment);
    const std::size_t progress_at = slots_at + slot * static_cast<std::size_t>(threads);
    const std::size_t values_at = align_up(progress_at + 8 * pieces_.count, kTensorAlignment);
    bytes_ = values_at + floats * sizeof(float);
    void* memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) raise<IoError>("no shared memory of {} bytes", bytes_);
    memory_ = static_cast<std::byte*>(memory);
    header_ = new (memory_) UpdateHeader;
    values_ = {reinterpret_cast<float*>(memory_ + values_at), floats};
    const std::span<std::byte> slots(memory_ + slots_at, progress_at - slots_at);
    auto* progress = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_ + progress_at);
    journal_ =
        UpdateJournal(*header_, values_.data(), {progress, pieces_.count}, slots, {slots}, slot);
  }
  SharedUpdate(const SharedUpdate&) = delete;
  SharedUpdate& operator=(const SharedUpdate&) = delete;
  ~SharedUpdate() { ::munmap(memory_, bytes_); }

  std::uint64_t step() const { return header_->step.load(std::memory_order_acquire); }
  std::span<float> values() const { return values_; }
  UpdateJournal& journal() { return journal_; }
  void update(const kernels::Context& context, optim::Optimizer& optimizer, std::uint64_t step,
              std::span<const float> gradients) {
    header_->step.store(step, std::memory_order_release);
    optimizer.step(context, {.step = step, .learning_rate = 1e-2},
                   {values_.first(elements_), {}, gradients, values_.subspan(elements_)}, 0,
                   elements_, &journal_);
  }

 private:
  std::size_t elements_, bytes_ = 0;
  optim::UpdatePieces pieces_;
  std::byte* memory_ = nullptr;
  UpdateHeader* header_ = nullptr;
  std::span<float> values_;
  UpdateJournal journal_;
};

// Two threads update step after step until a signal ends them wherever they are, in the middle of a
// kernel mostly; the survivor finishes the step that was begun.
TEST(UpdateFaults, AKillAtAnyInstant) {
  constexpr int kDeaths = 60;
  const nn::ParameterLayout layout = test_layout();
  std::vector<float> gradients(layout.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = noise(1, i, 1);
  int interrupted = 0;
  for (const optim::OptimizerName name :
       {optim::OptimizerName::kAdamwTorch, optim::OptimizerName::kSgd,
        optim::OptimizerName::kAdagrad, optim::OptimizerName::kAdafactor}) {
    const optim::OptimizerOptions options = {.name = name, .weight_decay = 0.01, .momentum = 0.9};
    const auto optimizer = optim::make_optimizer(options, layout);
    SharedUpdate shared(*optimizer, layout.size(), 2);
    SharedUpdate undisturbed(*optimizer, layout.size(), 2);
    for (int death = 0; death < kDeaths; ++death) {
      const std::uint64_t before = shared.step();
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        Machine machine;  // threads of its own
        for (std::uint64_t step = before + 1;; ++step)
          shared.update(machine.context, *optimizer, step, gradients);
      }
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (shared.step() == before && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(37 * death));
      ::kill(child, SIGKILL);
      ASSERT_EQ(::waitpid(child, nullptr, 0), child);
      ASSERT_GT(shared.step(), before) << "the child did not begin";

      Machine machine;
      for (std::uint64_t step = before + 1; step <= shared.step(); ++step)
        undisturbed.update(machine.context, *optimizer, step, gradients);
      const auto same = [&] { return std::ranges::equal(shared.values(), undisturbed.values()); };
      if (!same()) ++interrupted;
      shared.journal().restore();
      shared.update(machine.context, *optimizer, shared.step(), gradients);
      ASSERT_TRUE(same()) << to_string(name) << ", death " << death << ", step " << shared.step();
    }
  }
  EXPECT_GT(interrupted, kDeaths);  // out of four times as many; fewer would be no test
}

}  // namespace
}  // namespace tandem::dist
