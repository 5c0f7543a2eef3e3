// The newest view of a job as its agent on this node sees it: the members, their ranks, and what
// has changed since the view before.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/elastic/agent/worker_count.h"
#include "tandem/elastic/protocol/view.h"

namespace tandem::elastic {

class CurrentView {
 public:
  // Ranks of a view: those of earlier members, of this node, and of all.
  struct Ranks {
    int before = 0;
    int own = 0;
    int all = 0;
  };

  CurrentView(membership::NodeId self, WorkerCount num_workers)
      : self_(self), num_workers_(std::move(num_workers)) {}

  // There has been a view, so the job does not wait for all of its workers any more.
  bool begun() const { return number_.counter != 0; }
  // Its number on this node, which the workers' packets carry.
  std::uint64_t serial() const { return serial_; }
  const membership::ViewNumber& number() const { return number_; }
  const std::vector<membership::Member>& members() const { return members_; }
  std::vector<membership::Peer> others() const;
  bool paused() const { return paused_; }
  // The step after which it began.
  std::uint64_t step() const { return step_; }
  int num_ranks() const { return num_ranks_; }
  int num_workers() const { return num_workers_.total(); }  // workers of the whole job

  // ---- from one view to the next ----
  // The same nodes with the same workers.
  bool has_members_of(const membership::View& view) const;
  bool loses_member(const membership::View& next) const;
  // Text for people: the reason of the change, and the nodes that join and leave.
  std::string changes_to(const membership::View& next) const;
  void set_reason(std::string why) { why_ = std::move(why); }
  Ranks install(const membership::View& view);
  // The workers of this node run once more alone, to save a checkpoint.
  void begin_closing() { ++serial_; }

  // A job has at most as many ranks as logical shards; more workers stand by.
  void limit_ranks(std::size_t most) { most_ranks_ = most; }
  std::size_t most_ranks() const { return most_ranks_; }
  // Null: there is no such rank.
  const membership::Member* member_of_rank(int rank) const;

  // The first worker of the view on this node, which reports the progress; -1: none yet.
  int keeping_worker() const { return keeping_worker_; }
  void set_keeping_worker(int worker) { keeping_worker_ = worker; }

  // ---- where its ranks meet ----
  // The address of rank 0 of a view that may be installed here soon.
  void note_address(const membership::ViewNumber& number, const std::string& address);
  // Null: it is not known yet.
  const std::string* address() const;

 private:
  struct RankZeroAddress {
    membership::ViewNumber number;
    std::string text;
  };
  Ranks ranks_of(const membership::View& view) const;

  membership::NodeId self_;
  std::uint64_t serial_ = 0;
  membership::ViewNumber number_;
  std::vector<membership::Member> members_;
  bool paused_ = false;
  std::uint64_t step_ = 0;
  int num_ranks_ = 0;
  WorkerCount num_workers_;
  std::size_t most_ranks_ = 0;  // 0: unknown
  int keeping_worker_ = -1;
  std::string why_;  // the reason for the next view
  std::optional<RankZeroAddress> address_;
};

}  // namespace tandem::elastic
