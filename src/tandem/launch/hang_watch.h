// Detects workers that hang during their preparation. The time to read model and data is unlimited.
// But a worker that uses no processor meanwhile makes no progress, and before the job has begun all
// others wait for it. The worker that decides where the job begins reads neither: its time is
// limited even if it uses a processor.
//
// One thread.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "tandem/elastic/node.h"
#include "tandem/launch/agent.h"
#include "tandem/launch/elastic_member.h"

namespace tandem::launch {

class HangWatch {
 public:
  using Clock = ElasticMember::Clock;

  // A worker that has used no processor for `limit`, or decides for so long, is killed. `members`
  // and `node` must outlive it.
  HangWatch(std::span<ElasticMember> members, const elastic::Node& node,
            std::chrono::milliseconds limit, Log log);

  void look();
  std::chrono::milliseconds nap() const;  // time until the next call
  // The worker hung twice. Before the job has begun, a hang of any worker counts: the obstacle for
  // the worker that decides where the job begins is the same for the next one.
  bool is_again(const ElasticMember& member) const;

 private:
  bool prepares(const ElasticMember& member) const;
  Clock::duration still_for(ElasticMember& member) const;
  std::string hangs(ElasticMember& member) const;
  void kill(ElasticMember& member, const std::string& why) const;

  const std::span<ElasticMember> members_;
  const elastic::Node& node_;
  const std::chrono::milliseconds limit_;
  const Log log_;
  int hangs_before_ = 0;  // until the job began: hangs of any worker
};

}  // namespace tandem::launch
