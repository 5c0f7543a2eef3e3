// Who computes: a view is a number and an ordered list of nodes. It never changes; another set of
// nodes is another view. docs/elastic.md tells the protocol from the beginning.
//
// A node is one agent process with the memory that it keeps for its workers. An agent that starts
// again on the same host is another node, for its memory is gone. So a node never forgets what it
// has accepted, and nothing has to be written to a disk before it may answer.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::membership {

// Chosen at random by each agent process; 0: nobody.
using NodeId = std::uint64_t;

struct Peer {
  NodeId id = 0;
  std::string address;  // where it can be reached; the driver knows how
  friend bool operator==(const Peer&, const Peer&) = default;
};

// Of a view and of the proposal that it was. No two proposals have the same: the counter is above
// all that the proposer has seen, and no other node uses its id. Counter 0: no view.
struct ViewNumber {
  std::uint64_t counter = 0;
  NodeId proposer = 0;
  friend auto operator<=>(const ViewNumber&, const ViewNumber&) = default;
};

// What a node holds: `step` is the last step that it has applied, or whose update its workers can
// finish because the whole gradient is there. Steps are counted from 1; 0: the initial weights.
struct Holding {
  std::uint64_t step = 0;
  std::uint32_t workers = 0;
  bool leaving = false;  // has been told to end (SIGTERM)
  friend bool operator==(const Holding&, const Holding&) = default;
};

struct Member {
  Peer peer;
  std::uint32_t workers = 0;
  std::uint64_t step = 0;  // what it held when the view was made: View::step or one less
  friend bool operator==(const Member&, const Member&) = default;
};

// A worker that failed: where, and how it looked ("signal 11", "exit code 70").
struct Fault {
  NodeId node = 0;
  std::uint64_t occurrence = 0;  // counts those of the node
  std::uint64_t step = 0;        // that it was computing
  std::string how;
  friend bool operator==(const Fault&, const Fault&) = default;
};

struct View {
  ViewNumber number;
  // The views that it follows: the newest one that was known to be installed, and those that may
  // have been.
  std::vector<ViewNumber> after;
  std::vector<Member> members;  // the longest members first; the first one leads
  std::uint64_t step = 0;       // the highest that anybody held; the view begins with the next
  Peer source;                  // has `step`: members that are one behind get it from there
  bool paused = false;          // fewer than MIN nodes: save a checkpoint, wait for more
  std::vector<Fault> faults;    // of the step that comes next

  bool exists() const { return number.counter != 0; }
  const Member* find(NodeId node) const {
    const auto it = std::find_if(members.begin(), members.end(),
                                 [&](const Member& m) { return m.peer.id == node; });
    return it == members.end() ? nullptr : &*it;
  }
  bool has(NodeId node) const { return find(node) != nullptr; }
  friend bool operator==(const View&, const View&) = default;
};

}  // namespace tandem::membership
