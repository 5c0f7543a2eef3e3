#include "membership/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>

#include "tandem/dist/learner_ledger.h"
#include "tandem/membership/agent.h"
#include "tandem/membership/wire.h"

namespace tandem::simulation {
namespace {

using namespace membership;

constexpr Time kStart{1000};

Peer peer_of(std::size_t i) { return {i + 1, fmt::format("node{:04}:29400", i)}; }

// The leader's agent and its link; the others hold step 0 and do what they are asked.
class Star {
 public:
  Star(std::size_t nodes, const Network& network) : nodes_(nodes), network_(network) {
    AgentOptions options;
    options.self = peer_of(0);
    options.job = {"amx", {}, 1};
    options.who = {"node", {"amx"}, {}, 1};
    const auto n = static_cast<std::uint32_t>(nodes);
    options.bounds = {n > 1 ? n - 1 : 1, n};
    options.last_step = 100;
    options.founder = true;
    rules_ = std::make_unique<Rules>();
    agent_ = std::make_unique<Agent>(options, *rules_, Holding{0, 1, false}, kStart);
    channel_.prove = [](auto) { return WireProof{}; };
  }

  void meet() {
    for (std::size_t i = 1; i < nodes_; ++i) arrive(i, Ask{{"node", {"amx"}, {}, 1}, held()});
    run();
  }
  void lose(std::size_t i) {
    result_ = {};
    sent_until_ = received_until_ = now_ = 0;
    agent_->peer_dead(kStart, peer_of(i).id);
    run();
  }
  ViewChange result() const {
    ViewChange result = result_;
    result.seconds = now_;
    return result;
  }
  bool running(std::size_t members) const {
    return agent_->phase() == Agent::Phase::kRunning && agent_->view().members.size() == members;
  }

 private:
  static Holding held() { return {0, 1, false}; }
  double size_of(const Message& message) {
    return static_cast<double>(encode(channel_, {peer_of(0), 1, message}).size());
  }
  // Node i says it now; the leader's link receives one message after another.
  void arrive(std::size_t i, const Message& message) {
    count(message);
    const double at = std::max(now_ + network_.latency_seconds, received_until_);
    received_until_ = at + size_of(message) / network_.bytes_per_second;
    later(received_until_, [this, i, message] { agent_->receive(kStart, peer_of(i), message); });
  }
  void leave(const Send& send) {
    count(send.message);
    const double bytes = same_offer(send.message) ? offer_bytes_ : size_of(send.message);
    sent_until_ = std::max(now_, sent_until_) + bytes / network_.bytes_per_second;
    const std::size_t i = send.to.id - 1;
    const double at = sent_until_ + network_.latency_seconds;
    if (const auto* propose = std::get_if<Propose>(&send.message)) {
      const ViewNumber number = propose->number;
      later(at + network_.stop_seconds, [this, i, number] {
        Answer answer;
        answer.number = answer.promised = number;
        answer.holding = held();
        arrive(i, answer);
      });
    } else if (const auto* offer = std::get_if<Offer>(&send.message)) {
      const ViewNumber number = offer->view.number;
      later(at, [this, i, number] { arrive(i, Accept{number}); });
    } else {
      later(at, [] {});
    }
  }
  // Encoding thousands of equal offers takes long and says nothing new.
  bool same_offer(const Message& message) {
    const auto* offer = std::get_if<Offer>(&message);
    if (offer == nullptr) return false;
    if (offer_ != offer->view.number) {
      offer_ = offer->view.number;
      offer_bytes_ = size_of(message);
    }
    return true;
  }
  void count(const Message& message) {
    ++result_.messages;
    result_.bytes +=
        static_cast<std::uint64_t>(same_offer(message) ? offer_bytes_ : size_of(message));
    const bool begins = std::holds_alternative<Propose>(message) ||
                        std::holds_alternative<Offer>(message) ||
                        std::holds_alternative<Install>(message);
    if (begins && message.index() != last_kind_) ++result_.rounds;
    if (begins) last_kind_ = message.index();
  }
  void later(double at, std::function<void()> what) {
    queue_.push({{at, order_++}, std::move(what)});
  }
  void run() {
    obey();
    while (!queue_.empty()) {
      const auto next = queue_.top();
      queue_.pop();
      now_ = next.first.first;
      next.second();
      obey();
    }
  }
  void obey() {
    for (const Order& order : agent_->take_orders()) {
      if (const auto* send = std::get_if<Send>(&order)) leave(*send);
      if (!std::holds_alternative<StopWorkers>(order)) continue;
      later(now_ + network_.stop_seconds, [this] { agent_->stopped(kStart, 0); });
    }
  }

  using Item = std::pair<std::pair<double, std::uint64_t>, std::function<void()>>;
  struct Later {
    bool operator()(const Item& a, const Item& b) const { return a.first > b.first; }
  };
  std::size_t nodes_;
  Network network_;
  std::unique_ptr<Rules> rules_;
  std::unique_ptr<Agent> agent_;
  Channel channel_;
  std::priority_queue<Item, std::vector<Item>, Later> queue_;
  std::uint64_t order_ = 0;
  double now_ = 0, sent_until_ = 0, received_until_ = 0;
  ViewNumber offer_;
  double offer_bytes_ = 0;
  std::size_t last_kind_ = 99;
  ViewChange result_;
};

}  // namespace

ViewChange rendezvous(std::size_t nodes, const Network& network) {
  Star star(nodes, network);
  star.meet();
  return star.result();
}

ViewChange lose_one(std::size_t nodes, const Network& network) {
  Star star(nodes, network);
  star.meet();
  star.lose(nodes / 2);
  return star.result();
}

Transfer learn(std::uint64_t bytes, std::uint64_t gradient_bytes, double step_seconds,
               const Network& network) {
  constexpr std::uint64_t kChunkBytes = 4 << 20;
  const auto chunks = static_cast<std::size_t>((bytes + kChunkBytes - 1) / kChunkBytes);
  const double of_gradient = static_cast<double>(gradient_bytes) / static_cast<double>(chunks);
  dist::LearnerLedger ledger(chunks);
  Transfer result;
  std::uint64_t step = 1;
  double now = 0;
  double next_step = step_seconds;
  while (ledger.whole_at() != step && step < 1'000'000) {
    if (const auto chunk = ledger.next_missing()) {
      now += 2 * kChunkBytes / network.bytes_per_second;  // with the rest that follows
      ledger.put(*chunk, step);
      ++result.chunks;
    }
    if (now < next_step) continue;
    ++step;
    next_step += step_seconds;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      if (!ledger.takes_gradient(chunk, step)) continue;
      ledger.put_gradient(chunk, step);
      now += of_gradient / network.bytes_per_second;
    }
  }
  result.seconds = now;
  return result;
}

}  // namespace tandem::simulation
