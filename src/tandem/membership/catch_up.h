// How a learner becomes level while training goes on. The state is cut into chunks. The learner
// fetches each from one of the members, several at once, and is sent from then on the reduced
// gradient of every step for the chunks that it has. A chunk carries the step after which it is a
// copy; a gradient of step n turns a chunk of step n − 1 into one of step n and is of no use to any
// other. So nothing has to arrive in order or once: what cannot be used is dropped, and a chunk
// that has missed a gradient is fetched again. The copy is whole when all chunks are of one step.
//
// This class decides; the driver moves the bytes. Thread-safety: one caller at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tandem/membership/messages.h"

namespace tandem::membership {

struct CatchUpOptions {
  std::uint32_t chunks = 1;
  std::uint32_t window = 8;                  // chunks under way from one sender
  std::chrono::milliseconds patience{1000};  // then another sender is asked
  std::chrono::milliseconds renewal{500};    // a subscription is said again
};

class CatchUp {
 public:
  using Time = std::chrono::milliseconds;

  explicit CatchUp(const CatchUpOptions& options);
  virtual ~CatchUp() = default;

  // Who has the state, their view, and the step at which they are. May be called whenever any of it
  // changes, and what the agent said last counts: when all members of a view are dead, the job goes
  // on in another one, whose step or number may be lower. Chunks that are ahead are fetched again.
  void job_at(ViewNumber view, std::uint64_t step, std::vector<Peer> senders);

  struct Request {
    Peer to;
    Fetch fetch;
  };
  // What to ask for now. To be called when something has arrived, and at next_wake().
  std::vector<Request> requests(Time now);
  Time next_wake() const { return next_wake_; }

  // Whether to store a chunk that has arrived: true if it is newer than what is there.
  bool take_chunk(Time now, std::uint32_t index, std::uint64_t step);
  // Whether to apply the gradient of `step` to the chunk.
  virtual bool take_gradient(Time now, std::uint32_t index, std::uint64_t step);

  bool whole() const;
  std::uint64_t step() const;  // of the oldest chunk; 0 if one is missing

 protected:
  struct State {
    bool there = false;
    bool missed = false;  // a gradient of a step that comes later has arrived
    std::uint64_t step = 0;
    std::uint32_t attempts = 0;  // turns to another sender
    Time asked{-1};              // < 0: not under way
    Time touched{0};
  };
  std::vector<State> chunks_;

 private:
  bool needs(const State& chunk, Time now) const;

  CatchUpOptions options_;
  ViewNumber view_;
  std::uint64_t job_step_ = 0;
  std::vector<Peer> senders_;
  Time next_renewal_{0};
  Time next_wake_{0};
};

}  // namespace tandem::membership
