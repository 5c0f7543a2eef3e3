// A large job: thousands of agents of production, without workers, in a network whose links and
// latency take time. Nothing is lost on the way; what happens is what the caller asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "membership/scale.h"
#include "tandem/elastic/protocol/membership.h"
#include "tandem/elastic/protocol/wire.h"

namespace tandem::simulation {

class Crowd {
 public:
  Crowd(std::size_t nodes, const Network& network);

  // Each runs the world until all that are there compute in one view, and returns the cost.
  ViewChange meet();  // all ask the bootstrap node, and the first view is made
  ViewChange lose(
      std::size_t position);  // a node of the view: its process dies, and its kernel reports it
  ViewChange silence(std::size_t position);  // its host is gone without a word
  ViewChange join();                         // one more comes, and learns
  // The job ends: all apply the last step, or one finds that the data are wrong.
  ViewChange finish();
  ViewChange fail(std::size_t position);

  std::size_t members() const { return view_.members.size(); }
  // The violated invariant; empty if all hold.
  const std::string& violation() const { return violation_; }

 private:
  using Nanoseconds = std::int64_t;
  struct CrowdNode {
    membership::Peer peer;
    std::unique_ptr<membership::Membership> membership;
    Nanoseconds sent_until = 0, received_until = 0;
    Nanoseconds wakes_at = kNeverWakes;
    bool learns = false;
  };
  static constexpr Nanoseconds kNeverWakes = INT64_MAX;

  void start(std::size_t contact, std::uint32_t workers);
  std::size_t at_position(std::size_t position) const;
  std::unique_ptr<membership::Membership> take_away(std::size_t position);
  membership::Time time() const;
  void later(Nanoseconds at, std::function<void()> what);
  void run_until(const std::function<bool()>& done);
  ViewChange change(std::size_t members);
  ViewChange ending(std::int32_t code);
  void act(std::size_t i, const std::function<void(membership::Membership&)>& input);
  void obey(std::size_t i);
  void on(std::size_t i, const membership::Send& order);
  void on(std::size_t i, const membership::StopWorkers&);
  void on(std::size_t i, const membership::RunView& order);
  void on(std::size_t i, const membership::AskReconfigurationPoint&);
  void on(std::size_t i, const membership::Learn&);
  void on(std::size_t i, const membership::End& order);
  template <class Other>
  void on(std::size_t, const Other&) {}
  void count(const std::shared_ptr<const membership::Message>& message);

  Network network_;
  std::uint32_t most_;
  membership::Rules rules_;
  membership::Channel channel_;
  std::vector<CrowdNode> nodes_;
  using Item = std::pair<std::pair<Nanoseconds, std::uint64_t>, std::function<void()>>;
  struct Later {
    bool operator()(const Item& a, const Item& b) const { return a.first > b.first; }
  };
  std::priority_queue<Item, std::vector<Item>, Later> queue_;
  std::uint64_t order_ = 0;
  Nanoseconds now_ = 0;
  membership::View view_;  // the newest that a node runs
  std::size_t running_ = 0, ended_ = 0;
  std::uint64_t step_ = 1;  // that all nodes hold but those that came since
  std::int32_t code_ = 0;
  std::shared_ptr<const membership::Message> sized_;  // the last one whose bytes were counted
  std::size_t bytes_ = 0;
  std::size_t last_kind_ = 0;
  ViewChange cost_;
  std::string violation_;
};

}  // namespace tandem::simulation
