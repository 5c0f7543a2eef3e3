// Jobs of agents in a world that a seed makes: messages are late, lost, repeated and overtaken;
// networks are cut, machines stop for a while, processes and hosts die and come back, workers fail,
// nodes join and leave. The agents are those of production (protocol/membership.h, joining.h), and
// so is the ledger of nodes that learn (transfer/learner_ledger.h); the workers are a toy
// (toy_job.h).
// After every event the invariants are checked:
//
//   one view per number    all that install a number install the same view, and of two views that
//                          follow the same one the later knows of the earlier (no split brain;
//                          checked as long as nothing has died)
//   fence                  a step sums what belongs to its view, each shard once
//   bits                   a state that is called whole is the reference's
//   learned                so is what a node has learned that is called whole
//   nothing lost           a member never gets an older state; no view starts below one
//   min                    fewer than MIN nodes do not compute
//   named waits            every agent that has not ended names what it waits for
//   progress               when all is healed, every agent ends within a bound
//
// Then one event after another until all have ended. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/elastic/protocol/rules.h"

namespace tandem::simulation {

// Rules of docs/elastic_protocol.md that tests break. Those of membership::Rules are broken by a
// class of its own.
struct Breaks {
  bool sum_any_view = false;      // R1: frames of other views are summed
  bool forget_undo = false;       // R3: an interrupted update is done again from its beginning
  bool any_gradient = false;      // learners are sent, and apply, gradients of any step
  bool write_again = false;       // R4: the log has an entry per writer
  bool replace_in_place = false;  // what a node had is overwritten before all of the new is there
  bool keep_half_copies = false;  // a copy that a death interrupts looks whole
};

struct Schedule {
  std::uint64_t seed = 0;
  // Choices of the seed; a test narrows them.
  bool deaths = true;
  bool partitions = true;
  bool losses = true;
  bool poison = true;      // a step at which workers always fail
  bool foreigners = true;  // a joiner with other files
  std::optional<std::uint32_t> nodes;
  std::optional<std::uint32_t> min_nodes;
  bool lock = true;     // some jobs have an external lock
  bool wire = false;    // every message goes through its bytes
  bool alarms = false;  // members that suspect others for no reason: rival proposals
  bool cuts = false;    // the network is cut, and whole again, all the time
  bool trace = false;   // logs every event in Outcome::trace
};

struct Outcome {
  std::string violation;  // empty: none
  std::uint64_t events = 0;
  std::uint64_t views = 0;
  std::uint64_t deaths = 0;
  std::uint64_t learned = 0;    // nodes whose first view had what they had learned
  std::uint64_t last_step = 0;  // the last step that any node applied
  std::int64_t ended_ms = 0;    // end in simulated time
  std::int64_t healed_ms = 0;
  std::vector<std::string> trace;
};

Outcome run(const Schedule& schedule, const membership::Rules& rules, const Breaks& breaks = {});
Outcome run(const Schedule& schedule);

}  // namespace tandem::simulation
