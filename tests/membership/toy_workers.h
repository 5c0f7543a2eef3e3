// The workers of a node in the simulation: they compute steps of a view as the real ones do, in
// integers. Steps go through levelling, computing, reducing, applying; each may be interrupted at
// every point.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "membership/simulation.h"
#include "membership/toy_job.h"
#include "tandem/elastic/protocol/membership.h"

namespace tandem::simulation {

using membership::NodeId;
using membership::Peer;
using membership::Time;
using membership::View;
using membership::ViewNumber;

// A node's part of the gradient of a step.
struct Part {
  ViewNumber view;
  std::uint64_t step = 0;
  NodeId from = 0;
  std::uint32_t begin = 0, end = 0;  // shards
  Values sum{};
  bool reconfiguration_point = false;
  bool repeated = false;  // for one that seems not to have it
};
// For the state at which the view begins: `learned` is a checksum of what is there already.
struct StateAsk {
  ViewNumber view;
  std::uint64_t step = 0;
  std::optional<std::uint64_t> learned;
};
struct LearnedRight {
  ViewNumber view;
};
struct StateChunk {
  ViewNumber view;
  std::uint64_t step = 0;
  std::size_t index = 0;
  std::uint64_t value = 0;
};
using Frame = std::variant<Part, StateAsk, LearnedRight, StateChunk>;

// The interface of workers to their node.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual void send(const Peer& to, const Frame& frame) = 0;
  virtual void wake_after(Time delay) = 0;
  virtual Time random_delay(int least, int most) = 0;
  virtual bool poisoned(std::uint64_t step, std::uint32_t begin, std::uint32_t end) = 0;
  virtual void worker_failed(std::uint64_t step) = 0;
  virtual void applied(ViewNumber view, std::uint64_t step, bool reconfiguration_point) = 0;
  // The gradient of the step is whole, and its update begins.
  virtual void reduced(std::uint64_t step, const Values& gradient) = 0;
  // The state is that of the step, and nothing writes to it until the next update or view.
  virtual void settled(std::uint64_t step) = 0;
  // The values learned before the view, if they are those of the step.
  virtual const Values* learned(std::uint64_t step) = 0;
  virtual bool learns() = 0;  // something was learned, and its sender is there
  virtual void learned_counts() = 0;
  virtual void step_failed(ViewNumber view, const std::vector<NodeId>& silent) = 0;
  virtual void violation(const std::string& what) = 0;
};

class Workers {
 public:
  // A view brings all of its members to the newest step that one of them has, as
  // dist::GradientEngine::level does: a node that has learned it asks whether it is right; else the
  // state is received into separate memory, then copied.
  Workers(Peer self, const Values& weights, std::uint64_t step, std::uint64_t data,
          const Breaks& breaks, Surroundings& around);

  // ---- the node's memory ----
  const Values& weights() const { return weights_; }
  const std::array<std::uint64_t, kChunks>& steps() const { return at_; }
  bool whole() const;
  std::uint64_t step() const;
  // Whether no worker writes to the memory now.
  bool readable() const {
    return doing_ == Doing::kComputing || doing_ == Doing::kReducing || doing_ == Doing::kHalted;
  }

  // ---- orders ----
  void run(Time now, const View& view);
  std::uint64_t stop();  // returns what the node holds now
  void ask_reconfiguration_point() { reconfiguration_point_asked_ = true; }
  void break_down() { broken_ = true; }  // a worker has died: nothing continues until stop()

  // ---- inputs ----
  void wake(Time now);
  void receive(Time now, const Peer& from, const Frame& frame);

 private:
  enum class Doing { kNothing, kLevelling, kCopying, kComputing, kReducing, kApplying, kHalted };

  void on(Time now, const Peer& from, const Part& part);
  void on(Time now, const Peer& from, const StateAsk& ask);
  void on(Time now, const Peer& from, const LearnedRight& right);
  void on(Time now, const Peer& from, const StateChunk& chunk);
  void seek_newest();
  void ask_for_state(Time now);
  void store_chunk(std::size_t index, std::uint64_t step, std::uint64_t value);
  void copy_some(Time now, std::size_t chunks);
  void forget_replaced();
  void begin_step(Time now);
  void send_part();
  void try_reduce(Time now);
  void apply_some(Time now, std::size_t chunks);
  void check_parts(const std::vector<Part>& parts);

  Peer self_;
  Values weights_;
  std::array<std::uint64_t, kChunks> at_{};
  std::uint64_t data_;
  const Breaks& breaks_;
  Surroundings& around_;
  Doing doing_ = Doing::kNothing;
  View view_;
  std::uint64_t computing_ = 0;                             // the step
  std::map<std::pair<std::uint64_t, NodeId>, Part> parts_;  // by step and sender
  std::optional<Part> own_, own_before_;
  std::optional<Values> gradient_;
  std::size_t done_ = 0;      // chunks of the update, or of the copy
  Peer source_;               // has the step at which the view begins
  std::uint64_t newest_ = 0;  // that step
  std::array<std::optional<std::uint64_t>, kChunks> staged_{};
  bool learned_wrong_ = false;
  bool reconfiguration_point_asked_ = false;
  bool reconfiguration_point_ = false;
  bool broken_ = false;
  Time due_{0};    // due time of the current work
  Time since_{0};  // it began
  Time again_{0};  // a message that may be lost is sent again
};

}  // namespace tandem::simulation
