// An agent answers for its whole job. It forwards questions about the workers of other hosts to
// their agents, over its connections to them (elastic/agent/agent_links.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tandem/elastic/agent/elastic_agent.h"
#include "tandem/launch/control/control.h"
#include "tandem/net/event_loop.h"

namespace tandem::elastic {

// One thread.
class JobControl {
 public:
  // This agent's own answers and actions: for a status request the JSON of a JobStatus, for the
  // others a line for users. May throw tandem::Error; the requester gets its message.
  using Answer = std::function<std::string(const launch::ControlRequest&)>;

  // `node` must outlive it.
  JobControl(pid_t pid, std::string token, ElasticAgent& node)
      : elastic_agent_(node), desk_(pid, std::move(token)) {}
  const std::string& failure() const { return desk_.failure(); }

  void add_to(net::EventLoop& loop) const;
  // Answers the received requests, after Node::serve().
  void serve(const Answer& answer);

 private:
  using Clock = std::chrono::steady_clock;
  // Forwarded to other agents.
  struct Open {
    std::uint64_t client = 0;
    std::map<membership::NodeId, membership::Peer> awaited;
    Clock::time_point until;
  };
  void take(const launch::ControlDesk::Question& question, const Answer& answer);
  void pass_on(const launch::ControlDesk::Question& question,
               const std::vector<membership::Peer>& to);
  void handle(const ElasticAgent::AppMessageFrom& message, const Answer& answer);
  void give_up_late();

  ElasticAgent& elastic_agent_;
  launch::ControlDesk desk_;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Open> open_;
};

}  // namespace tandem::elastic
