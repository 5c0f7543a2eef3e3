// The backends that `tandem bench comm` times alternately: a communicator each, over the same
// ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"

namespace tandem::apps::bench {

struct CommBackend {
  std::string name;  // ccl, mpi, gloo
  comm::TransportOptions transport;
};

// "ccl,gloo" in this order. Throws ConfigError: an unknown or repeated name, an MPI in a job of
// several ranks that no MPI launcher started, or an unknown CCL_ATL_TRANSPORT.
std::vector<CommBackend> choose_backends(const std::string& names, const Environment& environment,
                                         bool distributed);

// Loads the library of a plugin and starts it for one rank, in the calling process; others need not
// have it. Throws ConfigError, which names the package to install.
void try_library(const CommBackend& backend);

class CommSides {
 public:
  // Collective. The ranks meet once: the first communicator as any job would, the others by its
  // messages. An MPI is first wherever it is in the list, because Hydra's process manager serves a
  // process once. `options`: without the transport. Throws what Communicator::create throws.
  CommSides(const rendezvous::Identity& identity, const std::vector<CommBackend>& backends,
            const comm::Options& options);

  std::size_t size() const { return sides_.size(); }
  comm::Communicator& operator[](std::size_t side) { return *sides_[side]; }
  // Collective: from here on the ranks use communicator `side`. Until all have come the others are
  // driven, too, since a library may still have to deliver what its calls have given it.
  void turn_to(std::size_t side);
  // Collective; nothing may follow.
  void close();

 private:
  std::vector<std::unique_ptr<comm::Communicator>> sides_;  // in the order of the list
  std::vector<std::size_t> created_;                        // sides in the order of their start
  std::size_t current_ = 0;
};

}  // namespace tandem::apps::bench
