// The first meeting of the ranks: every rank brings a short text (its card: addresses, host,
// process) and leaves with the cards of all ranks.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/rendezvous/identity.h"

namespace tandem::rendezvous {

struct Met {
  std::string card;
  std::string address;  // where that rank was seen by rank 0 (rank 0: where it was reached); empty
                        // if unknown
};

// Collective over all ranks; returns world_size entries, by rank.
using Exchange = std::function<std::vector<Met>(const std::string& card)>;

struct ExchangeOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  std::function<void(const std::string& line)>
      log;  // "waiting for ranks 2, 3 since 5 s"; may be empty
};

// Rank 0 listens and the others connect, retrying connections and name lookups until the timeout.
//   Where: identity.master_addr:master_port; under Hydra, unless the user chose the port, rank 0
//   takes a free port and publishes it (and its addresses) through PMI-1.
// Throws ConfigError: port taken, two processes with one rank, different world sizes. CommError:
// ranks missing when the timeout passes (rank 0 names them, and tells the ranks that did come),
// rank 0 absent or gone, PMI failed.
std::vector<Met> exchange_cards(const Identity& identity, const std::string& card,
                                const ExchangeOptions& options);

}  // namespace tandem::rendezvous
