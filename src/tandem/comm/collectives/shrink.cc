// Creates a communicator of the survivors.
#include <algorithm>

#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/core/error.h"
#include "tandem/rendezvous/shrink_agreement.h"

namespace tandem::comm {
namespace {

using net::Deadline;
using std::chrono::milliseconds;

// All ranks that continue have just confirmed it: a rank that has not arrived at the new bootstrap
// by then has died. Not limited by the deadline, which may have decided which ranks continue.
constexpr milliseconds kBootstrapTimeout{5000};

// Converts ranks of the communicator to ranks of the job, ascending and unique.
std::vector<int> job_ranks(const std::vector<int>& ranks, const std::vector<int>& members) {
  std::vector<int> result;
  for (const int rank : ranks) result.push_back(members[static_cast<std::size_t>(rank)]);
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

// The ranks in the state of the old communicator's monitor, which continues after a failure.
class WatchedRanks final : public rendezvous::ShrinkPeers {
 public:
  explicit WatchedRanks(CommContext& comm_context) : comm_context_(comm_context) {}
  std::string describe(int rank) const override {
    return comm_context_.peers[static_cast<std::size_t>(rank)].describe();
  }
  bool gone(int rank) const override { return comm_context_.monitor->gone(rank); }
  std::string why_expelled() const override { return comm_context_.monitor->why_expelled(); }
  void expel(int rank, const std::string& why) override { comm_context_.monitor->expel(rank, why); }
  bool may_leave_behind() const override { return comm_context_.failure.is_set(); }

 private:
  CommContext& comm_context_;
};

rendezvous::ShrinkAgreementOptions shrink_agreement_options(const Communicator::State& state,
                                                            std::vector<int> excluded) {
  rendezvous::ShrinkAgreementOptions result;
  result.rank = state.world(state.rank);
  result.members = state.members;
  result.excluded = std::move(excluded);
  result.key = static_cast<std::uint64_t>(state.context_number);
  result.loopback_only = state.comm_context->shrink_endpoint.loopback_only;
  return result;
}

}  // namespace

void Communicator::check_may_shrink(const ShrinkOptions& options) const {
  const State& s = *state_;
  const auto inside = s.comm_context->progress_thread.enter();
  if (s.closed) raise<InvalidArgument>("shrink: the communicator is closed");
  for (const int rank : options.exclude) {
    s.check_peer(rank, "shrink");
    if (rank == s.rank) {
      raise<InvalidArgument>("shrink: rank {} excludes itself; only ranks that continue call it",
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
  WatchedRanks known(*s.comm_context);
  const ShrinkEndpoint& address = s.comm_context->shrink_endpoint;
  rendezvous::ShrinkAgreement shrink_agreement(
      address.listener, address.listen_addresses, known,
      shrink_agreement_options(s, job_ranks(options.exclude, s.members)));
  const Deadline deadline(options.timeout.value_or(inherited.timeout));
  // Each round but the last fails because a rank has died in it.
  for (int rounds_left = s.size;; --rounds_left) {
    rendezvous::Agreement agreement = shrink_agreement.meet(deadline);
    const std::vector<int>& members = agreement.members;
    const auto self = std::find(members.begin(), members.end(), s.world(s.rank));
    if (self == members.end())
      raise<CommError>("shrink: the other ranks continued without {}", s.self().describe());
    const int new_rank = static_cast<int>(self - members.begin());
    try {
      return continue_with(new_rank, std::move(agreement), inherited);
    } catch (const CommError&) {
      if (rounds_left <= 1 || deadline.passed()) throw;
    }
  }
}

// The new communicator of the ranks that have agreed to continue; this rank is `new_rank` in it.
std::unique_ptr<Communicator> Communicator::continue_with(int new_rank,
                                                          rendezvous::Agreement agreement,
                                                          const Options& options) {
  CommContext& comm_context = *state_->comm_context;
  rendezvous::BootstrapOptions bootstrap_options;
  bootstrap_options.timeout = kBootstrapTimeout;
  bootstrap_options.check = [&] {
    for (const int member : agreement.members) {
      if (!comm_context.monitor->gone(member)) continue;
      raise<CommError>("{} died while the remaining ranks agreed",
                       comm_context.peers[static_cast<std::size_t>(member)].describe());
    }
  };
  const int new_size = static_cast<int>(agreement.members.size());
  const auto bootstrap = [&](const std::string& peer_info) {
    return rendezvous::exchange_peer_info_at(std::move(agreement.address), new_rank, new_size,
                                             peer_info, bootstrap_options);
  };
  auto communicator =
      create(new_rank, new_size, bootstrap, comm_context.shrink_endpoint.loopback_only, options,
             comm_context.shrink_endpoint.interface);
  // After the barrier all ranks have their communicator.
  communicator->barrier();
  communicator->forget_operations();
  communicator->state_->comm_context->membership = std::move(comm_context.membership);
  return communicator;
}

}  // namespace tandem::comm
