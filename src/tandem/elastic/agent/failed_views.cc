#include "tandem/elastic/agent/failed_views.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::elastic {
namespace {

// Views that may fail one after another without a step: first a node that has never contributed to
// a step gives up, so that the others continue; then the job fails.
constexpr int kMostFailed = 5;
constexpr int kMostFailedOfJob = 10;

}  // namespace

void FailedViews::report(int worker, const std::string& why) {
  if (!failed_) failed_ = fmt::format("worker {} reported: {}", worker, why);
}

void FailedViews::explain() {
  failed_in_a_row_ = 0;
  explained_ = true;
}

bool FailedViews::too_many(bool same) {
  if (!same) failed_in_a_row_ = 0;
  if (!same || explained_ || !failed_) return false;
  ++failed_in_a_row_;
  return failed_in_a_row_ >= (proven_ ? kMostFailedOfJob : kMostFailed);
}

// Neither a lost machine nor a visible bug: possibly the connection between the workers.
std::string FailedViews::message() const {
  return fmt::format(
      "{} views one after another have failed before a step was applied, and no node was lost: "
      "{}; so {}. Look for what cuts or damages connections between these workers (network cards, "
      "switches, proxies, firewalls), then start {} again",
      failed_in_a_row_, failed_.value_or(""), proven_ ? "the job ends" : "this node gives up",
      proven_ ? "the same command" : "it");
}

void FailedViews::begin_view(bool is_level) {
  failed_.reset();
  explained_ = false;
  proven_ = proven_ && is_level;
}

bool FailedViews::is_news(std::uint64_t view) { return std::exchange(damaged_view_, view) != view; }

// The step is computed again in the next view, which has new connections.
FailedViews::Damage FailedViews::damage(const membership::Member& sender,
                                        const membership::Member& receiver,
                                        const std::vector<membership::Member>& members,
                                        const std::string& message) {
  const std::size_t frames =
      damaged_links_.add(sender.peer.id, receiver.peer.id, DamagedLinks::Clock::now());
  explain();
  Damage damage;
  damage.link =
      fmt::format("the link from the node at {} to the node at {} has damaged {} frame{}",
                  sender.peer.address, receiver.peer.address, frames, frames == 1 ? "" : "s");
  damage.leaves = damaged_links_.leaves(members, DamagedLinks::Clock::now());
  if (damage.leaves)
    driven_out_ =
        fmt::format("{} within {} min: {}", damage.link, DamagedLinks::kWithin.count(), message);
  return damage;
}

}  // namespace tandem::elastic
