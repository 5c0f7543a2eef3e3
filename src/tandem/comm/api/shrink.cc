// Creates a communicator of the survivors.
#include <algorithm>

#include "tandem/comm/api/communicator_state.h"
#include "tandem/core/error.h"
#include "tandem/rendezvous/reunion.h"

namespace tandem::comm {
namespace {

using rendezvous::Deadline;
using std::chrono::milliseconds;

// All ranks that continue have just confirmed it: a rank that has not arrived at the new bootstrap
// by then has died. Not limited by the deadline, which may have decided which ranks continue.
constexpr milliseconds kMeeting{5000};

// Converts ranks of the communicator to ranks of the job, ascending and unique.
std::vector<int> job_ranks(const std::vector<int>& ranks, const std::vector<int>& members) {
  std::vector<int> result;
  for (const int rank : ranks) result.push_back(members[static_cast<std::size_t>(rank)]);
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

// The ranks in the state of the old communicator's monitor, which continues after a failure.
class WatchedRanks final : public rendezvous::Roster {
 public:
  explicit WatchedRanks(Fabric& fabric) : fabric_(fabric) {}
  std::string describe(int rank) const override {
    return fabric_.peers[static_cast<std::size_t>(rank)].describe();
  }
  bool gone(int rank) const override { return fabric_.monitor->gone(rank); }
  std::string why_expelled() const override { return fabric_.monitor->why_expelled(); }
  void expel(int rank, const std::string& why) override { fabric_.monitor->expel(rank, why); }
  bool may_leave_behind() const override { return fabric_.failure.is_set(); }

 private:
  Fabric& fabric_;
};

rendezvous::ReunionOptions reunion_options(const Communicator::State& state,
                                           std::vector<int> excluded) {
  rendezvous::ReunionOptions result;
  result.rank = state.world(state.rank);
  result.members = state.members;
  result.excluded = std::move(excluded);
  result.key = static_cast<std::uint64_t>(state.family);
  result.loopback_only = state.fabric->meeting.loopback_only;
  return result;
}

}  // namespace

void Communicator::check_may_shrink(const ShrinkOptions& options) const {
  const State& s = *state_;
  const auto inside = s.fabric->helper.enter();
  if (s.closed) raise<InvalidArgument>("shrink: the communicator is closed");
  for (const int rank : options.exclude) {
    s.check_peer(rank, "shrink");
    if (rank == s.rank) {
      raise<InvalidArgument>("shrink: rank {} excludes itself; only ranks that go on call it",
                             rank);
    }
  }
  const TransportOptions& transport = (options.options ? *options.options : s.options).transport;
  if (s.size > 1 && transport.is_mpi()) {
    raise<ConfigError>(
        "shrink: messages travel through {}, whose world cannot shrink; use --ddp_backend ccl or "
        "gloo, or start the job again",
        transport.name);
  }
  const bool busy = !s.pending.empty() || s.group_depth > 0;
  if (busy && !life().failed() && !options.abort) {
    raise<InvalidArgument>(
        "shrink: {} operations of the communicator are under way; wait for them, or abort them "
        "with ShrinkOptions::abort",
        s.pending.size() + s.grouped.size());
  }
}

std::unique_ptr<Communicator> Communicator::shrink(const ShrinkOptions& options) {
  check_may_shrink(options);
  State& s = *state_;
  const Options& inherited = options.options ? *options.options : s.options;
  if (s.size == 1) return create(0, 1, {}, /*loopback_only=*/true, inherited);
  if (options.abort) life().abort("its program shrinks the communicator");
  WatchedRanks known(*s.fabric);
  const ReunionPlace& place = s.fabric->meeting;
  rendezvous::Reunion reunion(place.listener, place.doors, known,
                              reunion_options(s, job_ranks(options.exclude, s.members)));
  const Deadline deadline(options.timeout.value_or(inherited.timeout));
  // Each round but the last fails because a rank has died in it.
  for (int rounds_left = s.size;; --rounds_left) {
    rendezvous::Agreement agreement = reunion.meet(deadline);
    const std::vector<int>& members = agreement.members;
    const auto self = std::find(members.begin(), members.end(), s.world(s.rank));
    if (self == members.end())
      raise<CommError>("shrink: the other ranks continued without {}", s.self().describe());
    const int new_rank = static_cast<int>(self - members.begin());
    try {
      return go_on(new_rank, std::move(agreement), inherited);
    } catch (const CommError&) {
      if (rounds_left <= 1 || deadline.passed()) throw;
    }
  }
}

// The new communicator of the ranks that have agreed to continue; this rank is `new_rank` in it.
std::unique_ptr<Communicator> Communicator::go_on(int new_rank, rendezvous::Agreement agreement,
                                                  const Options& options) {
  Fabric& fabric = *state_->fabric;
  rendezvous::ExchangeOptions exchange_options;
  exchange_options.timeout = kMeeting;
  exchange_options.check = [&] {
    for (const int member : agreement.members) {
      if (!fabric.monitor->gone(member)) continue;
      raise<CommError>("{} died while the ranks that are left were meeting",
                       fabric.peers[static_cast<std::size_t>(member)].describe());
    }
  };
  const int new_size = static_cast<int>(agreement.members.size());
  const auto exchange = [&](const std::string& card) {
    return rendezvous::exchange_cards_at(std::move(agreement.place), new_rank, new_size, card,
                                         exchange_options);
  };
  auto communicator = create(new_rank, new_size, exchange, fabric.meeting.loopback_only, options,
                             fabric.meeting.interface);
  // After the barrier all ranks have their communicator.
  communicator->barrier();
  communicator->forget_operations();
  communicator->state_->fabric->membership = std::move(fabric.membership);
  return communicator;
}

}  // namespace tandem::comm
