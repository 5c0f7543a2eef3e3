// The bootstrap: an all-gather in which every rank contributes a short text (its peer info:
// addresses, host, process) and receives those of all ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/net/event_loop.h"
#include "tandem/net/socket.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/rendezvous/pmi.h"

namespace tandem::rendezvous {

struct Met {
  std::string peer_info;
  std::string address;  // where that rank was seen by rank 0 (rank 0: where it was reached); empty
                        // if unknown
};

// The connection to rank 0 between the all-gather and the moment when all ranks are ready
// (connected to each other). If a rank exits or fails in between, all ranks are notified at once
// and fail too. One thread at a time.
class BootstrapMonitor {
 public:
  virtual ~BootstrapMonitor() = default;
  // From now on a host that does not answer for this long counts as lost. During the all-gather the
  // limit is 5 s.
  virtual void watch_hosts(std::chrono::milliseconds silence) = 0;
  // Descriptors to poll meanwhile; when one of them is readable, call check().
  virtual void add_to(net::EventLoop& loop) const = 0;
  // Throws CommError if a rank has exited or failed.
  virtual void check() = 0;
  // Reports this rank as ready and returns when all ranks are. Throws CommError if a rank fails, or
  // at the deadline; the message names the ranks that were not ready.
  virtual void finish(const net::Deadline& deadline) = 0;
  // Reports the failure of this rank to the others.
  virtual void give_up(std::string_view reason) noexcept = 0;
};

struct BootstrapResult {
  BootstrapResult() = default;
  // For ranks that connected in another way: no BootstrapMonitor.
  BootstrapResult(std::vector<Met> all)
      : met(std::move(all)) {}                          // NOLINT(google-explicit-constructor)
  std::vector<Met> met;                                 // world_size entries, by rank
  std::unique_ptr<BootstrapMonitor> bootstrap_monitor;  // may be null
  Membership membership;  // in the job of the process manager that the ranks used for the bootstrap
};

// Collective over all ranks.
using Bootstrap = std::function<BootstrapResult(const std::string& peer_info)>;

// How long a failed rank 0 stays to notify ranks that connect later, and how long another failed
// rank, which has no port, tries to reach a later rank 0.
inline constexpr std::chrono::milliseconds kLateRanks{10000};
inline constexpr std::chrono::milliseconds kLateRank0{30000};

struct BootstrapOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // "waiting for ranks 2, 3 since 5 s"; may be empty.
  std::function<void(const std::string& line)> log;
  // A failed rank 0 stays this long to notify ranks that connect later; they would otherwise wait
  // until their timeout.
  std::chrono::milliseconds late_ranks{0};
  // A rank that has failed before the bootstrap tries this long to reach rank 0.
  std::chrono::milliseconds late_rank_0{5000};
  // How long a rank of this node with the same launcher may be stopped (SIGSTOP, a debugger) while
  // the others wait for it; 0: no limit.
  std::chrono::milliseconds stall_timeout{0};
  // Called several times a second while waiting: by rank 0, and by every rank at a
  // RendezvousAddress. Throws CommError to end the wait (rank 0 notifies the others). May be empty.
  std::function<void()> check;
};

// Rank 0 listens and the others connect. They retry connections and name lookups until the timeout.
//   Address: identity.master_addr:master_port. Under Hydra, unless the user chose the port, rank 0
//   takes a free port and publishes it (and its addresses) through PMI-1.
//   Authentication: with identity.job_token every rank proves that it knows the token, and rank 0
//   proves it to them. Unauthenticated connections are closed without effect on the job. A process
//   with another version or a wrong token is refused and all ranks log it, because the right
//   process may still connect. Ranks that use PMI-1 have a random token if no other.
// Throws ConfigError: port in use, two processes with one rank, different world sizes; on the
// refused rank: a wrong token, another version.
// Throws CommError: ranks missing at the timeout (rank 0 names them, and notifies the ranks that
// connected; under Hydra the ranks of a host name those of it), a rank of this host stopped, rank 0
// absent or lost, PMI failed.
BootstrapResult exchange_peer_info(const Identity& identity, const std::string& peer_info,
                                   const BootstrapOptions& options);

// Reports `reason` on behalf of a rank that has failed before the bootstrap (for example a wrong
// flag). Without the report the other ranks would wait until their timeouts and fail with
// CommError. Rank 0 stays until all ranks have connected, at most options.late_ranks; another rank
// tries for options.late_rank_0 to reach rank 0. Does nothing if the launcher ends all ranks when
// one fails (Identity::ended_by_launcher).
void report_failure(const Identity& identity, const std::string& reason,
                    const BootstrapOptions& options) noexcept;

// A bootstrap address for ranks without a launcher: rank 0 opens it and the program passes its text
// to the others by any means (a file, a pipe, another library).
struct RendezvousAddress {
  net::FileDescriptor listener;  // only in the process that opened it
  std::string text;  // printable; holds the job's secret: any process that has it may join
};

// A listener at a free port, with the addresses that own_addresses(interface) names. `text` is at
// most `max_bytes` long; addresses that no longer fit are left out. Throws ConfigError, IoError.
RendezvousAddress open_rendezvous_address(const std::string& interface, std::size_t max_bytes);

// The same without addresses, for ranks that know how to reach each other: address_at() adds the
// address that this rank uses.
RendezvousAddress open_bare_address(bool loopback_only);
std::string address_at(const std::string& bare_text, const std::string& host);

// exchange_peer_info() at such a RendezvousAddress; rank 0 passes the listener. Throws what
// exchange_peer_info() throws, and InvalidArgument if the text is malformed or rank 0 has no
// listener.
BootstrapResult exchange_peer_info_at(RendezvousAddress address, int rank, int world_size,
                                      const std::string& peer_info,
                                      const BootstrapOptions& options);

}  // namespace tandem::rendezvous
