// A worker of an elastic job computes in one view after another, until the job is over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/elastic/worker/agent_channel.h"

namespace tandem::elastic {

// How this worker connects to the others of a view.
struct ViewNetwork {
  std::string interface;  // rendezvous::Identity::interface
  comm::Options options;
};

// Callbacks of the job. All callbacks are called by the thread of compute_in_views().
struct ViewJob {
  // For the report to the agent that this worker can compute.
  std::function<AgentChannel::Ready()> ready;
  // The last step that the node has or can finish.
  std::function<std::uint64_t()> reachable_step;
  // As for AgentChannel::next_view().
  std::function<void()> learn;
  // Computes in a view. Returns the exit code at the end of the job, or nothing if all ranks leave
  // the view at the end of a step. Throws CommError if the view has failed, and Interrupted.
  std::function<std::optional<int>(const Assignment&, comm::Communicator&)> compute;
};

// Returns after the agent has been informed of the end of the job. Throws Interrupted if a user
// requests the end, and the errors of the job.
void compute_in_views(AgentChannel& channel, const ViewNetwork& network, const ViewJob& job);

// Connects the ranks of a view. Collective over them. Throws CommError.
std::unique_ptr<comm::Communicator> join_view(AgentChannel& channel, const Assignment& assignment,
                                              const ViewNetwork& network);

// During its lifetime the communicator fails as soon as the agent requests the end of the view.
class EnteredView {
 public:
  EnteredView(AgentChannel& channel, std::uint64_t view, comm::Communicator& communicator)
      : channel_(channel) {
    channel.enter(view, [&communicator] { communicator.life().abort("the view changes"); });
  }
  ~EnteredView() { channel_.leave(); }
  EnteredView(const EnteredView&) = delete;
  EnteredView& operator=(const EnteredView&) = delete;

 private:
  AgentChannel& channel_;
};

}  // namespace tandem::elastic
