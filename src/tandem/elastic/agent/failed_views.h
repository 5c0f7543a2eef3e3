// Views that fail although no worker is lost, and frames that arrive damaged: when a node gives up,
// and when the job does.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/elastic/agent/damaged_links.h"
#include "tandem/elastic/protocol/view.h"

namespace tandem::elastic {

class FailedViews {
 public:
  // A worker has reported that the view cannot continue.
  void report(int worker, const std::string& why);
  // A loss or a damaged frame explains why the view fails.
  void explain();
  // The job has passed the start of the view.
  void note_progress() { failed_in_a_row_ = 0; }
  // A step has been applied in a view of this node, since it has the state.
  void prove() { proven_ = true; }

  // The next view has been ordered, and `same` workers as before. Returns true if these have failed
  // too often. An explained failure does not count: losses and damage have limits of their own.
  bool too_many(bool same);
  // The job ends, not only this node's part in it.
  bool ends_job() const { return proven_; }
  std::string message() const;
  // `is_level`: this node has the state with which it begins.
  void begin_view(bool is_level);

  // ---- damaged frames ----
  struct Damage {
    std::string link;                          // text: the link, and how many frames it has damaged
    std::optional<membership::NodeId> leaves;  // the node that has to leave
  };
  // Each worker of a view reports a damaged frame; it counts once.
  bool is_news(std::uint64_t view);
  Damage damage(const membership::Member& sender, const membership::Member& receiver,
                const std::vector<membership::Member>& members, const std::string& message);
  // The damage that made a node leave, or empty.
  const std::string& driven_out() const { return driven_out_; }

 private:
  int failed_in_a_row_ = 0;  // consecutive views that failed without a step and without a loss
  bool proven_ = false;
  bool explained_ = false;
  std::optional<std::string> failed_;  // the workers' failed view, and the worker that reported why
  DamagedLinks damaged_links_;
  std::uint64_t damaged_view_ = 0;  // the newest view that a damaged frame has ended
  std::string driven_out_;
};

}  // namespace tandem::elastic
