#include "tandem/elastic/worker/view_loop.h"

#include <chrono>
#include <utility>

#include "tandem/comm/failure/damaged_link.h"
#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/rendezvous/bootstrap.h"

namespace tandem::elastic {
namespace {

// All ranks of the view have just reported that they are ready; if one fails, its agent stops the
// view.
constexpr std::chrono::seconds kBootstrapTimeout{30};

// Reports to the agent that `view` cannot continue, and the damaged link if that is the cause.
void send_failure(AgentChannel& channel, std::uint64_t view, const CommError& error) {
  std::optional<std::pair<int, int>> damaged;
  if (const auto* link = dynamic_cast<const comm::DamagedLink*>(&error))
    damaged.emplace(link->ends().from, link->ends().to);
  channel.failed(view, error.what(), damaged);
}

// Rank 0 opens the address and sends it to the others, which wait for it.
rendezvous::RendezvousAddress meeting_address(AgentChannel& channel, const Assignment& assignment,
                                              const std::string& interface) {
  const bool one_node = assignment.briefing.one_node;
  rendezvous::RendezvousAddress address;
  if (assignment.rank == 0) {
    address = one_node ? rendezvous::open_bare_address(/*loopback_only=*/true)
                       : rendezvous::open_rendezvous_address(interface, kMostAddress);
    if (one_node) address.text = rendezvous::address_at(address.text, "127.0.0.1");
    channel.send_address(assignment.view, address.text);
  } else {
    auto text = channel.address(assignment.view);
    if (!text) raise<CommError>("the view was abandoned before its ranks were connected");
    address.text = std::move(*text);
  }
  return address;
}

}  // namespace

std::unique_ptr<comm::Communicator> join_view(AgentChannel& channel, const Assignment& assignment,
                                              const ViewNetwork& network) {
  if (assignment.size == 1)
    return comm::Communicator::create(0, 1, {}, /*loopback_only=*/true, network.options);
  rendezvous::RendezvousAddress address = meeting_address(channel, assignment, network.interface);
  rendezvous::BootstrapOptions bootstrap_options;
  bootstrap_options.timeout = kBootstrapTimeout;
  bootstrap_options.check = [&] {
    if (channel.is_stopped(assignment.view))
      raise<CommError>("the view was abandoned before its ranks were connected");
  };
  const auto bootstrap = [&](const std::string& info) {
    return rendezvous::exchange_peer_info_at(std::move(address), assignment.rank, assignment.size,
                                             info, bootstrap_options);
  };
  return comm::Communicator::create(assignment.rank, assignment.size, bootstrap,
                                    assignment.briefing.one_node, network.options,
                                    network.interface);
}

void compute_in_views(AgentChannel& channel, const ViewNetwork& network, const ViewJob& job) {
  while (true) {
    const Assignment assignment = channel.next_view(job.ready(), job.learn);
    bool as_agreed = false;
    try {
      const std::unique_ptr<comm::Communicator> communicator =
          join_view(channel, assignment, network);
      const EnteredView entered(channel, assignment.view, *communicator);
      const InterruptionScope leaving(channel.stop_ordered());
      try {
        const std::optional<int> code = job.compute(assignment, *communicator);
        if (code) channel.done(*code);
        as_agreed = !code;
        communicator->close();
        if (code) return;
      } catch (const Interrupted&) {
        if (!channel.stop_ordered()) throw;  // a user requests the end of the job
      }
    } catch (const CommError& error) {
      send_failure(channel, assignment.view, error);
    }
    channel.left(assignment.view, job.reachable_step(), as_agreed);
  }
}

}  // namespace tandem::elastic
