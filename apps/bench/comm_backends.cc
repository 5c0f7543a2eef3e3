#include "apps/bench/comm_backends.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "tandem/comm/network/plugin_fabric.h"
#include "tandem/comm/texts.h"
#include "tandem/core/error.h"

namespace tandem::apps::bench {

using comm::Communicator;

std::vector<CommBackend> choose_backends(const std::string& names, const Environment& environment,
                                         bool distributed) {
  std::vector<CommBackend> backends;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    if (std::any_of(backends.begin(), backends.end(),
                    [&](const CommBackend& known) { return known.name == name; }))
      raise<ConfigError>("--backend {}: '{}' is named twice", names, name);
    backends.push_back({name, comm::choose_transport(name, environment, distributed)});
  }
  return backends;
}

void try_library(const CommBackend& backend) {
  if (!backend.transport.is_plugin()) return;
  comm::PluginFabric(backend.transport, /*rank=*/0, /*world_size=*/1, std::chrono::seconds(10),
                     "127.0.0.1");
}

CommSides::CommSides(const rendezvous::Identity& identity, const std::vector<CommBackend>& backends,
                     const comm::Options& options)
    : sides_(backends.size()), created_(backends.size()) {
  std::iota(created_.begin(), created_.end(), std::size_t{0});
  std::stable_partition(created_.begin(), created_.end(),
                        [&](std::size_t side) { return backends[side].transport.is_mpi(); });
  Communicator* first = nullptr;
  const rendezvous::Bootstrap through_first = [&](const std::string& peer_info) {
    std::vector<rendezvous::Met> met;
    for (std::string& text : all_gather_texts(*first, peer_info))
      met.push_back({std::move(text), ""});
    first->barrier();  // no rank leaves while another one still waits for a message
    return rendezvous::BootstrapResult(std::move(met));
  };
  for (const std::size_t side : created_) {
    comm::Options own = options;
    own.transport = backends[side].transport;
    sides_[side] = first == nullptr ? Communicator::create(identity, std::move(own))
                                    : Communicator::create(identity.rank, identity.world_size,
                                                           through_first, identity.loopback(),
                                                           std::move(own), identity.interface);
    if (first == nullptr) first = sides_[side].get();
  }
  current_ = created_.back();
}

void CommSides::turn_to(std::size_t side) {
  if (side == current_) return;
  Communicator& next = *sides_[side];
  const auto since = std::chrono::steady_clock::now();
  const comm::Request all_are_here = next.start(comm::Call{});  // a barrier
  while (!next.wait_for(all_are_here, std::chrono::microseconds(100))) {
    for (const auto& other : sides_) {
      if (other.get() != &next) other->progress();
    }
    next.check_wait(since, /*peer=*/-1, "the next backend's turn");
  }
  current_ = side;
}

void CommSides::close() {
  // The side through whose messages the others met is closed last, because an MPI belongs to the
  // whole process.
  for (auto side = created_.rbegin(); side != created_.rend(); ++side) {
    turn_to(*side);
    sides_[*side]->close();
  }
}

}  // namespace tandem::apps::bench
