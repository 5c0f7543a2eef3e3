// For tests: all interleavings of a small model of a protocol.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace tandem::comm {

// Visits all reachable states and counts them. `next` returns the states one step away, or the text
// of a violated promise. A state without successors must be `final`. Returns the violation; empty:
// none.
template <class State>
std::string explore(const State& start,
                    const std::function<std::string(const State&, std::vector<State>&)>& next,
                    const std::function<bool(const State&)>& final, std::size_t* states = nullptr) {
  std::set<State> seen = {start};
  std::vector<State> todo = {start};
  while (!todo.empty()) {
    const State state = todo.back();
    todo.pop_back();
    std::vector<State> successors;
    const std::string wrong = next(state, successors);
    if (!wrong.empty()) return wrong;
    if (successors.empty() && !final(state)) return "no rank can move, and not all are done";
    for (const State& successor : successors) {
      if (seen.insert(successor).second) todo.push_back(successor);
    }
  }
  if (states != nullptr) *states = seen.size();
  return "";
}

}  // namespace tandem::comm
