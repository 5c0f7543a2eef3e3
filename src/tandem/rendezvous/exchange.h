// The first meeting of the ranks: every rank brings a short text (its card: addresses, host,
// process) and leaves with the cards of all ranks.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/rendezvous/identity.h"
#include "tandem/rendezvous/pmi.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {

struct Met {
  std::string card;
  std::string address;  // where that rank was seen by rank 0 (rank 0: where it was reached); empty
                        // if unknown
};

// The line to rank 0 between the exchange and the moment when all ranks are ready (connected to
// each other). A rank that ends or gives up in between is named to all at once, and nobody goes on
// without the others. One thread at a time.
class Vigil {
 public:
  virtual ~Vigil() = default;
  // From now on a host that answers nothing for this long has gone. The meeting itself is more
  // patient: 5 s.
  virtual void watch_hosts(std::chrono::milliseconds silence) = 0;
  // What to poll while doing something else; when one of them is readable, call check().
  virtual void add_to(std::vector<pollfd>& waits) const = 0;
  // Throws CommError when a rank has ended or given up.
  virtual void check() = 0;
  // This rank is ready. Returns when all are; throws CommError when one fails instead, or at the
  // deadline, naming who was not ready.
  virtual void finish(const Deadline& deadline) = 0;
  // This rank gives up: the others are told why.
  virtual void give_up(std::string_view reason) noexcept = 0;
};

struct Meeting {
  Meeting() = default;
  // Without a vigil: ranks that met in another way.
  Meeting(std::vector<Met> all) : met(std::move(all)) {}  // NOLINT(google-explicit-constructor)
  std::vector<Met> met;                                   // world_size entries, by rank
  std::unique_ptr<Vigil> vigil;                           // may be null
  Membership membership;  // in the job of the process manager through which the ranks met
};

// Collective over all ranks.
using Exchange = std::function<Meeting(const std::string& card)>;

// How long a rank 0 that has failed stays to tell the ranks that come later, and how long another
// rank, which keeps no port, tries to reach a rank 0 that comes later.
constexpr std::chrono::milliseconds kLateRanks{10000};
constexpr std::chrono::milliseconds kLateRank0{30000};

struct ExchangeOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // "waiting for ranks 2, 3 since 5 s"; may be empty.
  std::function<void(const std::string& line)> log;
  // When rank 0 has failed, it stays this long to tell the ranks that come later, which would wait
  // for it until their timeout.
  std::chrono::milliseconds late_ranks{0};
  // When another rank has failed before the meeting, it tries this long to reach rank 0.
  std::chrono::milliseconds late_rank_0{5000};
  // How long a rank of this node, started by who started this one, may be stopped (SIGSTOP, a
  // debugger) while the others wait for it; 0: no limit.
  std::chrono::milliseconds stall_timeout{0};
  // Asked several times a second by rank 0, and at a meeting place by every rank, while it waits;
  // throws CommError when waiting has become useless (rank 0 tells the others). May be empty.
  std::function<void()> check;
};

// Rank 0 listens and the others connect, retrying connections and name lookups until the timeout.
//   Where: identity.master_addr:master_port; under Hydra, unless the user chose the port, rank 0
//   takes a free port and publishes it (and its addresses) through PMI-1.
//   Who: with identity.job_token every rank proves that it knows the token, and rank 0 proves it to
//   them. Strangers at the port are shown out and disturb nobody; so is a process of another
//   version or with a wrong token, whose refusal all ranks log: the right one may still come. Ranks
//   that met through PMI-1 have a random token if no other.
// Throws ConfigError: port taken, two processes with one rank, different world sizes; on the rank
// that was refused: a wrong token, another version.
// CommError: ranks missing when the timeout passes (rank 0 names them, and tells the ranks that did
// come; under Hydra the ranks of a host name those of it), a rank of this host stopped, rank 0
// absent or gone, PMI failed.
Meeting exchange_cards(const Identity& identity, const std::string& card,
                       const ExchangeOptions& options);

// Of a rank that has failed before the meeting (a wrong flag, say): goes there to tell the others
// `reason`, who would wait for it until their timeouts and end with CommError instead. Rank 0 stays
// until all have come, options.late_ranks at most; another rank tries for options.late_rank_0 to
// reach rank 0. Does nothing where who started the ranks ends them all when one fails
// (Identity::ended_by_launcher).
void tell_of_failure(const Identity& identity, const std::string& reason,
                     const ExchangeOptions& options) noexcept;

// Where ranks meet that no launcher told of each other: rank 0 opens the place, and its text
// travels to the others by whatever means the program has (a file, a pipe, another library).
struct MeetingPlace {
  FileDescriptor listener;  // only in the process that opened it
  std::string text;  // printable; holds the job's secret: who has it may join, and nobody else
};

// A listener at a free port, with the addresses that own_addresses(interface) names. `text` is at
// most `max_bytes` long; addresses that no longer fit are left out. Throws ConfigError, IoError.
MeetingPlace open_meeting_place(const std::string& interface, std::size_t max_bytes);

// The same without addresses, for ranks that know how to reach each other: place_at() adds the one
// that this rank uses.
MeetingPlace open_bare_place(bool loopback_only);
std::string place_at(const std::string& bare_text, const std::string& host);

// exchange_cards() at such a place; rank 0 gives the listener. Throws what exchange_cards() throws,
// and InvalidArgument when the text is not that of a meeting place or rank 0 has no listener.
Meeting exchange_cards_at(MeetingPlace place, int rank, int world_size, const std::string& card,
                          const ExchangeOptions& options);

}  // namespace tandem::rendezvous
