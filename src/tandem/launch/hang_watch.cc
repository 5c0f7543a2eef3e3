#include "tandem/launch/hang_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;

constexpr int kMostHangs = 2;
constexpr milliseconds kLookEvery{1000};

}  // namespace

HangWatch::HangWatch(std::span<ElasticMember> members, const elastic::Node& node,
                     milliseconds limit, Log log)
    : members_(members), node_(node), limit_(limit), log_(std::move(log)) {}

bool HangWatch::prepares(const ElasticMember& member) const {
  return member.process && !member.stuck &&
         node_.prepares(static_cast<int>(&member - members_.data()));
}

milliseconds HangWatch::nap() const {
  const bool any =
      std::ranges::any_of(members_, [this](const auto& member) { return prepares(member); });
  return any ? std::min(kLookEvery, limit_ / 2) : milliseconds::max();
}

bool HangWatch::hangs(ElasticMember& member) const {
  const auto ticks = prepares(member) ? processor_ticks(member.process->pid()) : std::nullopt;
  if (ticks) return member.stillness.look(*ticks, ElasticMember::Clock::now()) >= limit_;
  member.stillness = {};
  return false;
}

void HangWatch::kill(ElasticMember& member) const {
  log_(fmt::format(
      "worker {} (pid {}) has used no processor for {:.0f} s before it was ready: it is killed. It "
      "was stopped, or a file system keeps it waiting: look at those of --output_dir, the model "
      "and the data (--rdzv-conf join_timeout=SECONDS gives half of these seconds)",
      &member - members_.data(), member.process->pid(),
      std::chrono::duration<double>(limit_).count()));
  ++member.hangs;
  member.kill_stuck();
}

void HangWatch::look() {
  bool any = false;
  for (ElasticMember& member : members_) {
    if (!hangs(member)) continue;
    any = true;
    kill(member);
  }
  if (any && !node_.begun()) ++hangs_before_;
}

bool HangWatch::is_again(const ElasticMember& member) const {
  return member.hangs >= kMostHangs || (!node_.begun() && hangs_before_ >= kMostHangs);
}

}  // namespace tandem::launch
