#include "membership/crowd.h"

#include <fmt/format.h>

#include <algorithm>

#include "membership/toy_job.h"

namespace tandem::simulation {
namespace {

using namespace membership;

constexpr Time kStart{1000};
constexpr std::uint64_t kLastStep = 1'000'000;
constexpr double kStep = 0.1;      // seconds
constexpr double kTransfer = 0.5;  // until a learner is level
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(1e9 * seconds); }

// Ids are random, as in production: the order of the members is not that of the addresses.
Peer peer_of(std::size_t i) { return {mix(i + 1) | 1, fmt::format("node{:04}:29400", i)}; }
std::size_t index_of(const Peer& peer) { return std::stoul(peer.address.substr(4)); }

}  // namespace

Crowd::Crowd(std::size_t nodes, const Network& network)
    : network_(network), most_(static_cast<std::uint32_t>(nodes)) {
  channel_.prove = [](auto) { return WireProof{}; };
  for (std::size_t i = 0; i < nodes; ++i) start(i == 0 ? kNone : 0, 1);
}

void Crowd::start(std::size_t contact, std::uint32_t workers) {
  const std::size_t i = nodes_.size();
  MembershipOptions options;
  options.self = peer_of(i);
  options.job = {"amx", {}, 1};
  options.who = {"node", {"amx"}, {}, 1};
  options.bounds = {std::max(1u, most_ / 2), most_, most_};
  options.last_step = kLastStep;
  options.bootstrap_node = contact == kNone;
  if (contact != kNone) options.contacts.push_back(nodes_[contact].peer.address);
  CrowdNode node;
  node.peer = options.self;
  node.membership = std::make_unique<Membership>(
      options, rules_, NodeState{workers > 0 ? step_ : 0, workers, false}, time());
  nodes_.push_back(std::move(node));
  later(now_, [this, i] { obey(i); });
}

ViewChange Crowd::meet() { return change(nodes_.size()); }

std::size_t Crowd::at_position(std::size_t position) const {
  return index_of(view_.members.at(position).peer);
}

// Its process and what is on its way to it end.
std::unique_ptr<Membership> Crowd::take_away(std::size_t position) {
  return std::move(nodes_[at_position(position)].membership);
}

// Members have a connection to the first one, which reports its end to them.
ViewChange Crowd::lose(std::size_t position) {
  const NodeId dead = view_.members.at(position).peer.id;
  take_away(position);
  const std::size_t notified = position == 0 ? members() : 1;
  for (std::size_t other = 0; other < notified; ++other) {
    const std::size_t i = at_position(other);
    later(now_ + nanoseconds(network_.latency_seconds), [this, i, dead] {
      act(i, [&](Membership& membership) { membership.peer_dead(time(), dead); });
    });
  }
  return change(members() - 1);
}

ViewChange Crowd::silence(std::size_t position) {
  take_away(position);
  return change(members() - 1);
}

ViewChange Crowd::join() {
  start(at_position(0), 0);
  return change(members() + 1);
}

ViewChange Crowd::finish() {
  for (std::size_t position = 0; position < members(); ++position) {
    const std::size_t i = at_position(position);
    later(now_, [this, i] {
      act(i, [&](Membership& a) { a.applied(time(), view_.number, kLastStep, false); });
    });
  }
  return ending(0);
}

ViewChange Crowd::fail(std::size_t position) {
  code_ = 1;
  act(at_position(position),
      [&](Membership& membership) { membership.fail(time(), 1, "the data are wrong"); });
  return ending(1);
}

// ---- the world ----

Time Crowd::time() const { return kStart + Time(now_ / 1'000'000); }

void Crowd::later(Nanoseconds at, std::function<void()> what) {
  queue_.push({{at, order_++}, std::move(what)});
}

void Crowd::run_until(const std::function<bool()>& done) {
  const Nanoseconds limit = now_ + nanoseconds(120);
  while (!done()) {
    if (queue_.empty() || now_ > limit) {
      violation_ = fmt::format("progress: {} of {} run the newest view, {} have ended", running_,
                               members(), ended_);
      return;
    }
    const auto next = std::move(const_cast<Item&>(queue_.top()));
    queue_.pop();
    now_ = std::max(now_, next.first.first);
    next.second();
  }
}

ViewChange Crowd::change(std::size_t expected) {
  cost_ = {};
  last_kind_ = 0;
  const Nanoseconds begin = now_;
  run_until([&] { return members() == expected && running_ == expected; });
  cost_.seconds = 1e-9 * static_cast<double>(now_ - begin);
  return cost_;
}

ViewChange Crowd::ending(std::int32_t code) {
  cost_ = {};
  code_ = code;
  const Nanoseconds begin = now_;
  run_until([&] { return ended_ == members(); });
  cost_.seconds = 1e-9 * static_cast<double>(now_ - begin);
  return cost_;
}

void Crowd::act(std::size_t i, const std::function<void(Membership&)>& input) {
  if (!nodes_[i].membership) return;
  input(*nodes_[i].membership);
  obey(i);
}

// ---- what an agent asks for ----

void Crowd::obey(std::size_t i) {
  CrowdNode& node = nodes_[i];
  if (!node.membership) return;
  for (const Order& order : node.membership->take_orders())
    std::visit([&](const auto& o) { on(i, o); }, order);
  const Time wake = node.membership->next_wake();
  if (wake == kNever) return;
  if (node.membership->waiting_for().empty()) violation_ = "named waits: it names no reason";
  const Nanoseconds at = std::max<Nanoseconds>(now_, 1'000'000 * (wake - kStart).count());
  if (at >= node.wakes_at) return;
  node.wakes_at = at;
  later(at, [this, i, at] {
    if (nodes_[i].wakes_at != at) return;
    nodes_[i].wakes_at = kNeverWakes;
    act(i, [&](Membership& membership) { membership.wake(time()); });
  });
}

// A message leaves when those before it have, and is there when those before it are.
void Crowd::on(std::size_t i, const Send& order) {
  count(order.message);
  const std::size_t to = index_of(order.to);
  const Nanoseconds takes = nanoseconds(static_cast<double>(bytes_) / network_.bytes_per_second);
  CrowdNode& sender = nodes_[i];
  CrowdNode& receiver = nodes_[to];
  sender.sent_until = std::max(now_, sender.sent_until) + takes;
  receiver.received_until = std::max(sender.sent_until, receiver.received_until + takes);
  const Nanoseconds at = receiver.received_until + nanoseconds(network_.latency_seconds);
  later(at, [this, to, from = sender.peer, message = order.message] {
    act(to, [&](Membership& membership) { membership.receive(time(), from, *message); });
  });
}

void Crowd::on(std::size_t i, const StopWorkers&) {
  later(now_ + nanoseconds(network_.stop_seconds),
        [this, i] { act(i, [&](Membership& membership) { membership.stopped(time(), step_); }); });
}

void Crowd::on(std::size_t i, const RunView& order) {
  if (order.view.number > view_.number) {
    view_ = order.view;
    running_ = 0;
  }
  ++running_;
  if (order.view != view_) violation_ = "one view per number: two differ, or an older one is run";
  if (!order.view.has(nodes_[i].peer.id)) violation_ = "it runs a view that it is not in";
}

// The step that is computed ends everywhere, with a header that announces a stop of all.
void Crowd::on(std::size_t, const AskReconfigurationPoint&) {
  later(now_ + nanoseconds(kStep), [this, number = view_.number] {
    if (number != view_.number) return;
    ++step_;
    for (const Member& member : std::vector<Member>(view_.members))
      act(index_of(member.peer), [&](Membership& a) { a.applied(time(), number, step_, true); });
  });
}

void Crowd::on(std::size_t i, const Learn&) {
  if (std::exchange(nodes_[i].learns, true)) return;
  later(now_ + nanoseconds(kTransfer), [this, i] {
    act(i, [&](Membership& membership) { membership.workers_changed(time(), 1); });
  });
}

void Crowd::on(std::size_t, const End& order) {
  ++ended_;
  if (order.code != code_)
    violation_ = fmt::format("it ends with {}, '{}'", order.code, order.message);
}

void Crowd::count(const std::shared_ptr<const Message>& message) {
  if (sized_ != message) {
    sized_ = message;
    bytes_ = encode(channel_, {peer_of(0), 1, *message}).size();
  }
  ++cost_.messages;
  cost_.bytes += bytes_;
  const bool begins = std::holds_alternative<Propose>(*message) ||
                      std::holds_alternative<Offer>(*message) ||
                      std::holds_alternative<Install>(*message);
  if (begins && message->index() != last_kind_) ++cost_.rounds;
  if (begins) last_kind_ = message->index();
}

}  // namespace tandem::simulation
