// An agent answers for its whole job: what is asked about the workers of other hosts it passes on
// to their agents, over the connections that they have (elastic/agent_links.h).
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tandem/elastic/node.h"
#include "tandem/launch/control.h"

namespace tandem::launch {

// One thread.
class JobControl {
 public:
  // What this agent says and does itself: to a status JSON of a JobStatus, to the others a line for
  // people. May throw tandem::Error: who asks gets its message.
  using Answer = std::function<std::string(const ControlRequest&)>;

  // `node` outlives it.
  JobControl(pid_t pid, std::string token, elastic::Node& node)
      : node_(node), desk_(pid, std::move(token)) {}
  const std::string& failure() const { return desk_.failure(); }

  void add_to(std::vector<pollfd>& waits) const { desk_.add_to(waits); }
  std::chrono::milliseconds nap() const;
  // Answers what has come, after Node::serve().
  void serve(const Answer& answer);

 private:
  using Clock = std::chrono::steady_clock;
  // Passed on to others.
  struct Open {
    std::uint64_t guest = 0;
    std::map<membership::NodeId, membership::Peer> awaited;
    Clock::time_point until;
  };
  void take(const ControlDesk::Question& question, const Answer& answer);
  void pass_on(const ControlDesk::Question& question, const std::vector<membership::Peer>& to);
  void hear(const elastic::Node::Said& said, const Answer& answer);
  void give_up_late();

  elastic::Node& node_;
  ControlDesk desk_;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Open> open_;
};

}  // namespace tandem::launch
