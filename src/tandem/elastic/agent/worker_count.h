// How many workers the job has when all of its nodes are there with all of theirs. Nodes may have
// different numbers of workers.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tandem/elastic/protocol/view.h"

namespace tandem::elastic {

class WorkerCount {
 public:
  // This node has `own` workers, the job at most `max_nodes` nodes. `given`: the job's number of
  // workers if its launcher knows it, else at most 1.
  WorkerCount(int own, std::size_t max_nodes, int given)
      : own_(own), max_nodes_(max_nodes), given_(given) {}

  void note_view(std::span<const membership::Member> members, membership::NodeId self);
  // A node that has never been in a view counts as one like this one, a node that has left counts
  // with the most workers that it had, until another takes its place.
  int total() const;

 private:
  int own_;
  std::size_t max_nodes_;
  int given_;
  std::map<membership::NodeId, int> present_;  // the most workers of each node of the newest view
  std::vector<int> absent_;                    // those of nodes that have left
};

}  // namespace tandem::elastic
