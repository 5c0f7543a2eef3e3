#include "tandem/elastic/agent/current_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tandem::elastic {
namespace {

bool has(const std::vector<membership::Member>& members, membership::NodeId id) {
  return std::any_of(members.begin(), members.end(),
                     [&](const membership::Member& member) { return member.peer.id == id; });
}

}  // namespace

std::vector<membership::Peer> CurrentView::others() const {
  std::vector<membership::Peer> others;
  for (const membership::Member& member : members_) {
    if (member.peer.id != self_) others.push_back(member.peer);
  }
  return others;
}

bool CurrentView::has_members_of(const membership::View& view) const {
  return std::equal(
      view.members.begin(), view.members.end(), members_.begin(), members_.end(),
      [](const auto& a, const auto& b) { return a.peer == b.peer && a.workers == b.workers; });
}

bool CurrentView::loses_member(const membership::View& next) const {
  return std::any_of(members_.begin(), members_.end(), [&](const membership::Member& member) {
    return !has(next.members, member.peer.id);
  });
}

std::string CurrentView::changes_to(const membership::View& next) const {
  std::vector<std::string> changes;
  if (!why_.empty()) changes.push_back(why_);
  for (const membership::Member& member : members_) {
    if (!has(next.members, member.peer.id))
      changes.push_back(fmt::format("without the node at {}", member.peer.address));
  }
  for (const membership::Member& member : next.members) {
    if (!members_.empty() && !has(members_, member.peer.id))
      changes.push_back(fmt::format("with the node at {}", member.peer.address));
  }
  return fmt::format("{}", fmt::join(changes, "; "));
}

CurrentView::Ranks CurrentView::install(const membership::View& view) {
  ++serial_;
  number_ = view.number;
  step_ = view.step;
  paused_ = view.paused;
  members_ = view.members;
  num_workers_.note_view(members_, self_);
  const Ranks ranks = ranks_of(view);
  num_ranks_ = ranks.all;
  return ranks;
}

CurrentView::Ranks CurrentView::ranks_of(const membership::View& view) const {
  Ranks ranks;
  for (const membership::Member& member : view.members) {
    const int room = static_cast<int>(most_ranks_) - ranks.all;
    const int count = std::min(static_cast<int>(member.workers), room);
    if (member.peer.id == self_) {
      ranks.before = ranks.all;
      ranks.own = count;
    }
    ranks.all += count;
  }
  return ranks;
}

// The ranks of a view are those of its members, one after another.
const membership::Member* CurrentView::member_of_rank(int rank) const {
  for (const membership::Member& member : members_) {
    if (rank < static_cast<int>(member.workers)) return &member;
    rank -= static_cast<int>(member.workers);
  }
  return nullptr;
}

void CurrentView::note_address(const membership::ViewNumber& number, const std::string& address) {
  if (!address_ || address_->number < number) address_ = {number, address};
}

const std::string* CurrentView::address() const {
  return address_ && address_->number == number_ ? &address_->text : nullptr;
}

}  // namespace tandem::elastic
