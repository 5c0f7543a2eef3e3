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

HangWatch::Clock::duration HangWatch::still_for(ElasticMember& member) const {
  const auto ticks = prepares(member) ? processor_ticks(member.process->pid()) : std::nullopt;
  if (ticks) return member.stillness.look(*ticks, Clock::now());
  member.stillness = {};
  return Clock::duration::zero();
}

// The reason to kill the worker, or nothing.
std::string HangWatch::hangs(ElasticMember& member) const {
  const double limit = std::chrono::duration<double>(limit_).count();
  const Clock::duration still = still_for(member);
  if (still >= limit_)
    return fmt::format("has used no processor for {:.0f} s before it was ready", limit);
  const auto worker = static_cast<int>(&member - members_.data());
  if (still < limit_ / 2 && prepares(member) && node_.decides_for(worker) >= limit_)
    return fmt::format("has been deciding for {:.0f} s where the job begins", limit);
  return "";
}

void HangWatch::kill(ElasticMember& member, const std::string& why) const {
  log_(
      fmt::format("worker {} (pid {}) {}: it is killed. It was stopped or is stuck, or a file "
                  "system keeps it waiting: look at those of --output_dir, the model and the data "
                  "(--rdzv-conf join_timeout=SECONDS gives half of these seconds)",
                  &member - members_.data(), member.process->pid(), why));
  ++member.hangs;
  member.kill_stuck();
}

void HangWatch::look() {
  bool any = false;
  for (ElasticMember& member : members_) {
    const std::string why = hangs(member);
    if (why.empty()) continue;
    any = true;
    kill(member, why);
  }
  if (any && !node_.begun()) ++hangs_before_;
}

bool HangWatch::is_again(const ElasticMember& member) const {
  return member.hangs >= kMostHangs || (!node_.begun() && hangs_before_ >= kMostHangs);
}

}  // namespace tandem::launch
