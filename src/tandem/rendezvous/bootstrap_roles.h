// The two sides of the bootstrap; bootstrap.cc selects the side.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/rendezvous/bootstrap.h"
#include "tandem/rendezvous/local_processes.h"

namespace tandem::rendezvous {

// Rank 0's listening address.
struct Rank0Address {
  std::vector<std::string> hosts;  // names or addresses, the most likely first
  int port = 0;
  std::uint64_t job = 0;  // rank 0 sends it in the handshake; 0: unknown
};

// Calls `log` after 5 s of waiting and then every 30 s.
class Notices {
 public:
  explicit Notices(const BootstrapOptions& options) : log_(options.log) {}
  template <class Text>
  void maybe(const net::Deadline& deadline, Text text) {
    if (!log_ || deadline.elapsed_seconds() * 1000 < static_cast<double>(next_.count())) return;
    next_ += std::chrono::milliseconds(30000);
    log_(text());
  }

 private:
  const std::function<void(const std::string&)>& log_;
  std::chrono::milliseconds next_{5000};
};

// The other ranks wait this much longer than rank 0, whose message names the missing ranks.
inline constexpr std::chrono::milliseconds kGrace{5000};
// A host that does not answer for this long during the start counts as lost.
inline constexpr std::chrono::milliseconds kStartSilence{5000};

// Text to add to the report that a connection has ended with this error number.
std::string_view silence_if(int error_number);

// Called several times a second while a rank waits, until all are ready. Throws CommError if a rank
// cannot connect any more. May be empty.
using LookAround = std::function<void()>;

// A barrier of the process manager, before any addresses are known. The manager does not report
// which ranks are missing, so the ranks of a host check each other. Throws CommError after
// options.timeout.
void wait_for_all(PmiClient& pmi, const Identity& identity, const BootstrapOptions& options,
                  LocalProcessWatch& watch, WaitingMark& mark);

BootstrapResult receive_ranks(const Identity& identity, const std::string& peer_info,
                              const BootstrapOptions& options, net::FileDescriptor listener,
                              std::uint64_t job, const LookAround& look_around = {});
BootstrapResult join_rank_0(const Identity& identity, const std::string& peer_info,
                            const BootstrapOptions& options, const Rank0Address& point,
                            const LookAround& look_around = {});

// The same for a rank that has failed with `reason`. The errors are those of the functions above.
void notify_ranks(const Identity& identity, const std::string& reason,
                  const BootstrapOptions& options, net::FileDescriptor listener);
void notify_rank_0(const Identity& identity, const std::string& reason,
                   const BootstrapOptions& options, const Rank0Address& point);

}  // namespace tandem::rendezvous
