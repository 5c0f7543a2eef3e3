// Sends a node's state to learners while the node trains: each chunk once, in the background, and
// from then on the chunk's mean gradient of every step, which the learner applies. So training
// never waits for the network; it waits for a copy of one chunk (768 KiB with AdamW), and, while a
// node learns, for a copy of those gradients that have not gone when the next backward overwrites
// them. docs/design/0024.
//
// One object per process, which outlives views. The GradientEngine of the node leader notifies it
// when the state may be read. Without learners that costs three locks per step.
//
// Chunks follow each other without a rest: the longer they take, the more gradients have to follow
// them. Memory: at most two gradients of the model per learner.
//
// Thread-safety: teach() any thread; the others the thread of the engine. Each learner is served by
// a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/dist/model_state.h"
#include "tandem/dist/state_observer.h"
#include "tandem/kernels/context.h"

namespace tandem::elastic {

// Makes a communicator of two: the learner is rank 0, the sender rank 1. `over` returns true once
// it is not needed any more. Throws CommError, also soon after `over` is true.
using ConnectLearner =
    std::function<std::unique_ptr<comm::Communicator>(const std::function<bool()>& over)>;

// Whether the state of such a model can be learned: it is one arena of the layout after another,
// and an update may be done chunk by chunk. Not so with Adafactor, or if nothing is trained.
bool can_be_learned(const dist::ModelState& model);

class StateSource final : public dist::StateObserver {
 public:
  static constexpr std::size_t kMostLearners = 4;  // at a time; further learners are not served

  // `model` must outlive it.
  explicit StateSource(dist::ModelState& model);
  ~StateSource() override;
  StateSource(const StateSource&) = delete;
  StateSource& operator=(const StateSource&) = delete;

  // Serves a learner until it is gone. `connect` is called by the learner's thread.
  void serve_state(ConnectLearner connect);
  std::size_t learners() const;
  // Gradients of chunks that have not gone to a learner yet, of all learners.
  std::size_t waiting_gradients() const;

  // ---- by the engine ----
  // The state may be written to from now on. Returns when no thread reads it any more.
  void hold() override;
  // The mean gradient of `update` is whole in the model, and stays so until keep_gradient().
  void reduced(const optim::OptimizerStep& update) override;
  // The gradient is overwritten from now on: what has not gone is copied before.
  void keep_gradient(ThreadPool& threads) override;
  // The state is whole, of `step`, and stays so until hold().
  void settled(std::uint64_t step) override;
  // This process does not lead its node any more, so it gets no notice when the state is written
  // to.
  void give_up() override;

 private:
  struct Session;
  struct GradientOfChunk;
  void run(Session& session);
  bool next(Session& session);
  void send_gradient(Session& session, std::unique_lock<std::mutex>& lock);
  void send_chunk(Session& session, std::size_t chunk, std::unique_lock<std::mutex>& lock);
  void note_gradients(Session& session, const optim::OptimizerStep& update);
  std::span<const float> gradient_of(std::size_t chunk) const;
  void end_all();
  void remove_ended();

  dist::ModelState& model_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = true;  // nothing is there yet
  std::uint64_t step_ = 0;
  std::list<std::unique_ptr<Session>> sessions_;
  std::vector<std::vector<float>> spare_;  // spare memory for a chunk's gradient
};

}  // namespace tandem::elastic
