// A view is a number and an ordered list of the nodes that compute. It never changes; another set
// of nodes is another view. docs/elastic_protocol.md has the protocol.
//
// A node is one agent process with the memory that it keeps for its workers. An agent that restarts
// on the same host is another node, because its memory is lost. A node therefore never forgets what
// it has accepted, and can answer without writing to a disk first.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::membership {

// Chosen at random by each agent process; 0: no node.
using NodeId = std::uint64_t;

struct Peer {
  NodeId id = 0;
  std::string address;  // address, in a form that the driver understands
  friend bool operator==(const Peer&, const Peer&) = default;
};

// The number of a view and of its proposal. Numbers are unique: the counter is above all that the
// proposer has seen, and no other node uses its id. Counter 0: no view.
struct ViewNumber {
  std::uint64_t counter = 0;
  NodeId proposer = 0;
  friend auto operator<=>(const ViewNumber&, const ViewNumber&) = default;
};

// The state of a node: `step` is the last step that it has applied, or whose update its workers can
// finish because the whole gradient is there. Steps are counted from 1; 0: the initial weights.
struct NodeState {
  std::uint64_t step = 0;
  std::uint32_t workers = 0;
  bool leaving = false;  // has been asked to end (SIGTERM)
  friend bool operator==(const NodeState&, const NodeState&) = default;
};

struct Member {
  Peer peer;
  std::uint32_t workers = 0;
  std::uint64_t step = 0;  // its state when the view was made: View::step or one less
  friend bool operator==(const Member&, const Member&) = default;
};

// A failed worker: its node, and the kind of failure ("signal 11", "exit code 70").
struct Fault {
  NodeId node = 0;
  std::uint64_t occurrence = 0;  // counts those of the node
  std::uint64_t step = 0;        // the step that it was computing
  std::string how;
  friend bool operator==(const Fault&, const Fault&) = default;
};

struct View {
  ViewNumber number;
  // The preceding views: the newest one known to be installed, and those that may have been.
  std::vector<ViewNumber> after;
  std::vector<Member> members;  // the longest members first; the first one leads
  std::uint64_t step = 0;       // the highest that any node held; the view begins with the next
  Peer source;                  // has `step`: members that are one behind get it from there
  bool paused = false;          // fewer than MIN nodes: save a checkpoint, wait for more
  std::vector<Fault> faults;    // faults of the step that comes next

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
