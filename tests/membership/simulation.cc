#include "membership/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <random>
#include <set>

#include "membership/toy_workers.h"
#include "tandem/membership/catch_up.h"
#include "tandem/membership/wire.h"

namespace tandem::simulation {
namespace {

using namespace membership;

struct ChunkData {
  Chunk header;
  std::uint64_t value = 0;
};
struct GradientData {
  Gradient header;
  std::uint64_t value = 0;
};
using Payload = std::variant<Message, Frame, ChunkData, GradientData>;

// ---- what happens ----

struct Packet {
  Peer from, to;
  Payload payload;
};
struct WakeAgent {
  NodeId id = 0;
};
struct WakeWorkers {
  NodeId id = 0;
};
struct WakeLearner {
  NodeId id = 0;
};
struct Stopped {
  NodeId id = 0;
};
struct HearDeath {
  NodeId id = 0, dead = 0;
};
struct HearNobody {
  NodeId id = 0;
  std::string address;
};
struct WorkersBack {
  NodeId id = 0;
};
struct Start {};  // an agent process on the host
struct LockCheck {};
using Happening = std::variant<Packet, WakeAgent, WakeWorkers, WakeLearner, Stopped, HearDeath,
                               HearNobody, WorkersBack, Start, LockCheck>;

struct Event {
  Time at{};
  std::uint64_t order = 0;
  std::size_t host = 0;
  Happening what;
};

enum class Trouble {
  kKill,
  kPowerOff,
  kCut,
  kCutOneLink,
  kJoinNets,
  kPause,
  kWorkerDies,
  kLeave,
  kFalseAlarm
};

// Learners that apply what they should not.
class BadCatchUp final : public CatchUp {
 public:
  using CatchUp::CatchUp;
  bool take_gradient(Time now, std::uint32_t index, std::uint64_t step) override {
    CatchUp::take_gradient(now, index, step);
    if (!chunks_[index].there) return false;
    chunks_[index].step = step;
    chunks_[index].missed = false;
    return true;
  }
};

constexpr Time kHealAt{9000};
constexpr Time kBound{39000};  // by then all must have ended
constexpr std::uint64_t kMostEvents = 200'000;

class World;

// A machine, and the agent process on it, if there is one.
struct Host final : Surroundings {
  Host(World& w, std::size_t i) : world(w), index(i) {}
  void send(const Peer& to, const Frame& frame) override;
  void wake_after(Time delay) override;
  Time random_delay(int least, int most) override;
  bool poisoned(std::uint64_t step, std::uint32_t begin, std::uint32_t end) override;
  void worker_failed(std::uint64_t step) override;
  void applied(ViewNumber view, std::uint64_t step, bool boundary) override;
  void step_failed(ViewNumber view, const std::vector<NodeId>& silent) override;
  void violation(const std::string& what) override;

  struct Subscriber {
    Peer peer;
    std::vector<std::uint32_t> chunks;
    Time until{};
  };

  World& world;
  std::size_t index;
  bool power = true;
  bool foreign = false;
  bool starts_late = false;
  bool leaving = false;
  bool gone = false;  // has left for good
  Time paused_until{};
  // Of the process:
  Peer self;
  std::unique_ptr<Agent> agent;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<CatchUp> learner;
  std::map<NodeId, Subscriber> subscribers;
  bool learning = false;
  Time wakes_at = kNever;
  Time learner_wakes_at{};
  std::optional<int> ended;
};

class World {
 public:
  World(const Schedule& schedule, const Rules& rules, const Breaks& breaks);
  Outcome run();

 private:
  friend struct Host;

  // ---- chance ----
  std::uint64_t random(std::uint64_t below) { return random_() % below; }
  bool chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }
  Time delay();

  // ---- events ----
  void at(Time when, std::size_t host, Happening what);
  void step();
  void happen(Host& host, Packet& packet);
  void happen(Host& host, WakeAgent& wake);
  void happen(Host& host, WakeWorkers& wake);
  void happen(Host& host, WakeLearner& wake);
  void happen(Host& host, Stopped& stopped);
  void happen(Host& host, HearDeath& news);
  void happen(Host& host, HearNobody& news);
  void happen(Host& host, WorkersBack& back);
  void happen(Host& host, Start& start);
  void happen(Host& host, LockCheck& check);
  void post(Host& from, const Peer& to, Payload payload);
  void refuse(const Packet& packet, const Host& by);
  void deliver(Host& host, const Packet& packet);
  void trouble();
  void heal();
  void die(Host& host, bool power_off);
  void cut();

  // ---- orders ----
  void obey(Host& host);
  void on(Host& host, Send& order);
  void on(Host& host, StopWorkers&);
  void on(Host& host, RunView& order);
  void on(Host& host, AskBoundary&) { host.workers->ask_boundary(); }
  void on(Host& host, Learn& order);
  void on(Host& host, StopLearning&) { host.learning = false; }
  void on(Host& host, SaveCheckpoint& order);
  void on(Host& host, LoadCheckpoint&);
  void on(Host& host, TakeLock&);
  void on(Host& host, DropLock&);
  void on(Host& host, End& order);
  void serve(Host& host, const Peer& to, const Fetch& fetch);
  void ask_for_chunks(Host& host);
  void tell_learned(Host& host);
  void log_step(std::uint64_t step, std::uint64_t loss);

  // ---- invariants ----
  void violation(const Host* host, const std::string& what);
  void check_installed(const Host& host, const View& view);
  void check_bits(const Host& host);
  void check_after(const Host& host);
  bool finished() const;
  void note(const Host* host, const std::string& what);

  Schedule schedule_;
  const Rules& rules_;
  const Breaks& breaks_;
  std::mt19937_64 random_;
  Time now_{1};
  std::uint64_t order_ = 0;
  std::priority_queue<std::pair<std::pair<Time, std::uint64_t>, std::size_t>,
                      std::vector<std::pair<std::pair<Time, std::uint64_t>, std::size_t>>,
                      std::greater<>>
      queue_;
  std::vector<Event> slots_;
  std::vector<std::size_t> free_slots_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::vector<char>> reach_;
  std::map<ViewNumber, View> installed_;
  std::vector<Values> reference_;
  std::map<std::uint64_t, std::pair<std::uint64_t, int>> log_;  // by step: loss, entries
  std::uint64_t steps_ = 0;
  Bounds bounds_;
  std::uint64_t checkpoint_ = 0;
  double loss_ = 0;
  double twice_ = 0;
  int longest_delay_ = 1;
  std::optional<std::uint64_t> poison_;
  bool lock_ = false;
  NodeId lock_holder_ = 0;
  std::size_t lock_side_ = 0;  // the host beside which the lock's service runs
  Time lock_lost_ = kNever;
  std::vector<std::uint64_t> troubles_;  // at these numbers of events
  std::vector<Time> timed_troubles_;
  bool healed_ = false;
  Outcome outcome_;
};

// ---- a host's surroundings ----

void Host::send(const Peer& to, const Frame& frame) { world.post(*this, to, frame); }
void Host::wake_after(Time delay) { world.at(world.now_ + delay, index, WakeWorkers{self.id}); }
Time Host::random_delay(int least, int most) {
  return Time(least + static_cast<int>(world.random(static_cast<std::uint64_t>(most - least + 1))));
}
bool Host::poisoned(std::uint64_t step, std::uint32_t begin, std::uint32_t) {
  return world.poison_ == step && begin == 0;
}
void Host::worker_failed(std::uint64_t step) {
  agent->worker_fault(world.now_, step, "signal 11");
  agent->workers_changed(world.now_, 0);
  world.at(world.now_ + Time(50 + world.random(400)), index, WorkersBack{self.id});
}
void Host::applied(ViewNumber view, std::uint64_t step, bool boundary) {
  world.outcome_.last_step = std::max(world.outcome_.last_step, step);
  world.log_step(step, workers->weights()[0]);
  if (workers->gradient()) {
    for (const auto& [id, subscriber] : subscribers) {
      if (subscriber.until <= world.now_) continue;
      for (const std::uint32_t k : subscriber.chunks) {
        if (k >= kChunks) continue;
        world.post(*this, subscriber.peer, GradientData{{k, step, 8}, (*workers->gradient())[k]});
      }
    }
  }
  agent->applied(world.now_, view, step, boundary);
}
void Host::step_failed(ViewNumber view, const std::vector<NodeId>& silent) {
  agent->step_failed(world.now_, view, {}, silent);
}
void Host::violation(const std::string& what) { world.violation(this, what); }

// ---- the world ----

World::World(const Schedule& schedule, const Rules& rules, const Breaks& breaks)
    : schedule_(schedule), rules_(rules), breaks_(breaks), random_(mix(schedule.seed + 1)) {
  const std::uint32_t nodes = schedule.nodes.value_or(static_cast<std::uint32_t>(1 + random(5)));
  bounds_.min_nodes =
      schedule.min_nodes.value_or(static_cast<std::uint32_t>(1 + random(std::max(1u, nodes / 2))));
  bounds_.max_nodes = chance(0.8) ? nodes : std::max(bounds_.min_nodes, nodes - 1);
  steps_ = 5 + random(40);
  reference_ = reference(steps_);
  longest_delay_ = std::array{1, 3, 30, 300}[random(4)];
  if (schedule.losses) {
    loss_ = std::array{0.0, 0.0, 0.02, 0.2}[random(4)];
    twice_ = std::array{0.0, 0.05, 0.3}[random(3)];
  }
  if (schedule.poison && chance(0.05)) poison_ = 1 + random(steps_);
  lock_ = schedule.lock && chance(0.1);
  lock_side_ = random(nodes);
  reach_.assign(nodes, std::vector<char>(nodes, 1));
  for (std::size_t i = 0; i < nodes; ++i) {
    hosts_.push_back(std::make_unique<Host>(*this, i));
    hosts_[i]->foreign = schedule.foreigners && i > 0 && i >= bounds_.min_nodes && chance(0.05);
    const bool late = i >= bounds_.min_nodes && chance(0.4);
    at(now_ + Time(late ? random(3000) : random(200)), i, Start{});
  }
  const std::uint64_t number = random(9);
  for (std::uint64_t i = 0; i < number; ++i) {
    if (chance(0.7))
      troubles_.push_back(random(1500));
    else
      timed_troubles_.push_back(Time(random(5000)));
  }
  for (int i = 0; schedule.alarms && i < 20; ++i) troubles_.push_back(random(1500));
  std::sort(troubles_.begin(), troubles_.end());
  std::sort(timed_troubles_.begin(), timed_troubles_.end());
  if (lock_) at(now_ + Time(100), lock_side_, LockCheck{});
}

Time World::delay() {
  const Time most{chance(0.05) ? 10 * longest_delay_ : longest_delay_};
  return Time(random(static_cast<std::uint64_t>(most.count()) + 1));
}

void World::at(Time when, std::size_t host, Happening what) {
  std::size_t slot = slots_.size();
  if (free_slots_.empty()) {
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[slot] = {when, ++order_, host, std::move(what)};
  queue_.push({{when, order_}, slot});
}

void World::note(const Host* host, const std::string& what) {
  if (!schedule_.trace) return;
  outcome_.trace.push_back(fmt::format(
      "{:6} {} {}", now_.count(),
      host ? host->self.address + "/" + std::to_string(host->self.id % 1000) : std::string("world"),
      what));
}

void World::violation(const Host* host, const std::string& what) {
  if (!outcome_.violation.empty()) return;
  outcome_.violation =
      fmt::format("{} (host {}, {} ms, event {})", what,
                  host ? host->self.address : std::string("none"), now_.count(), outcome_.events);
  note(host, "VIOLATION " + what);
}

Outcome World::run() {
  while (outcome_.violation.empty() && !finished()) {
    if (!troubles_.empty() && outcome_.events >= troubles_.front() && !healed_) {
      troubles_.erase(troubles_.begin());
      trouble();
    }
    const Time next = queue_.empty() ? kNever : queue_.top().first.first;
    if (!timed_troubles_.empty() && next >= timed_troubles_.front() && !healed_) {
      now_ = std::max(now_, timed_troubles_.front());
      timed_troubles_.erase(timed_troubles_.begin());
      trouble();
      continue;
    }
    if (!healed_ && next >= kHealAt) {
      now_ = std::max(now_, kHealAt);
      heal();
      continue;
    }
    if (next > kBound || outcome_.events > kMostEvents) {
      std::string waits;
      for (const auto& host : hosts_) {
        if (host->agent)
          waits += fmt::format("; {}: {}", host->self.address,
                               host->ended ? "has ended" : host->agent->waiting_for());
      }
      violation(nullptr, "progress: not all have ended" + waits);
      break;
    }
    step();
  }
  outcome_.ended_ms = now_.count();
  outcome_.healed_ms = kHealAt.count();
  outcome_.views = installed_.size();
  return outcome_;
}

void World::step() {
  const std::size_t slot = queue_.top().second;
  queue_.pop();
  Event event = std::move(slots_[slot]);
  free_slots_.push_back(slot);
  now_ = std::max(now_, event.at);
  ++outcome_.events;
  Host& host = *hosts_[event.host];
  const bool lock_service = std::holds_alternative<LockCheck>(event.what);
  if (now_ < host.paused_until && !lock_service) {
    at(host.paused_until + Time(random(3)), event.host, std::move(event.what));
    return;
  }
  std::visit([&](auto& what) { happen(host, what); }, event.what);
  obey(host);
  check_after(host);
}

void World::happen(Host& host, Packet& packet) {
  if (!host.power) return;
  if (!host.agent || (packet.to.id != 0 && packet.to.id != host.self.id)) {
    return refuse(packet, host);
  }
  deliver(host, packet);
}

// What is for a process that is not there comes back: its kernel says so, or who is there now.
void World::refuse(const Packet& packet, const Host& by) {
  const std::size_t from = static_cast<std::size_t>(packet.from.address[1] - '0');
  if (!reach_[by.index][from] || chance(loss_)) return;
  const Time when = now_ + delay();
  if (packet.to.id != 0) return at(when, from, HearDeath{packet.from.id, packet.to.id});
  at(when, from, HearNobody{packet.from.id, by.self.address});
}

void World::deliver(Host& host, const Packet& packet) {
  if (const auto* message = std::get_if<Message>(&packet.payload)) {
    if (const auto* fetch = std::get_if<Fetch>(message)) {
      if (!host.ended) serve(host, packet.from, *fetch);
      return;
    }
    host.agent->receive(now_, packet.from, *message);
  } else if (host.ended) {
    return;
  } else if (const auto* frame = std::get_if<Frame>(&packet.payload)) {
    host.workers->receive(now_, packet.from, *frame);
  } else if (const auto* chunk = std::get_if<ChunkData>(&packet.payload)) {
    if (!host.learning ||
        !host.learner->take_chunk(now_, chunk->header.index, chunk->header.step)) {
      return;
    }
    host.workers->store_chunk(chunk->header.index, chunk->header.step, chunk->value);
    tell_learned(host);
    ask_for_chunks(host);
  } else if (const auto* gradient = std::get_if<GradientData>(&packet.payload)) {
    const Gradient& header = gradient->header;
    if (!host.learning || !host.learner->take_gradient(now_, header.index, header.step)) return;
    host.workers->apply_gradient(header.index, header.step, gradient->value);
    tell_learned(host);
  }
}

void World::happen(Host& host, WakeAgent& wake) {
  if (!host.agent || wake.id != host.self.id) return;
  host.wakes_at = kNever;
  host.agent->wake(now_);
}

void World::happen(Host& host, WakeWorkers& wake) {
  if (host.agent && wake.id == host.self.id && !host.ended) host.workers->wake(now_);
}

void World::happen(Host& host, WakeLearner& wake) {
  if (host.agent && wake.id == host.self.id && host.learning) ask_for_chunks(host);
}

void World::happen(Host& host, Stopped& stopped) {
  if (!host.agent || stopped.id != host.self.id) return;
  const std::uint64_t step = host.workers->stop();
  outcome_.last_step = std::max(outcome_.last_step, step);
  host.agent->stopped(now_, step);
}

void World::happen(Host& host, HearDeath& news) {
  if (!host.agent || news.id != host.self.id) return;
  note(&host, fmt::format("hears that {} is dead", news.dead % 1000));
  host.agent->peer_dead(now_, news.dead);
}

void World::happen(Host& host, HearNobody& news) {
  if (host.agent && news.id == host.self.id) host.agent->nobody_at(now_, news.address);
}

void World::happen(Host& host, WorkersBack& back) {
  if (host.agent && back.id == host.self.id) host.agent->workers_changed(now_, 1);
}

void World::happen(Host& host, Start&) {
  if (host.agent || host.gone) return;
  host.power = true;
  host.self = {random_() | 1, fmt::format("n{}", host.index)};
  AgentOptions options;
  options.self = host.self;
  options.job = {"amx", {}, kShards};
  options.who = {host.self.address, {"avx2", "amx"}, {}, kShards};
  if (host.foreign) options.who.files[0] = 1;
  options.bounds = bounds_;
  options.last_step = steps_;
  options.founder = host.index == 0;
  options.external_lock = lock_;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (i != host.index) options.contacts.push_back(fmt::format("n{}", i));
  }
  Holding holding;
  holding.step = schedule_.levelled ? 0 : checkpoint_;  // `tandem run` reads it in the first view
  holding.workers = 1;
  host.agent = std::make_unique<Agent>(options, rules_, holding, now_);
  host.workers = std::make_unique<Workers>(host.self, reference_[holding.step], holding.step,
                                           host.foreign ? 7 : 0, schedule_.levelled, breaks_, host);
  host.learner.reset();
  host.learning = false;
  host.subscribers.clear();
  host.wakes_at = kNever;
  host.ended.reset();
  note(&host, fmt::format("starts with step {}", holding.step));
}

void World::post(Host& from, const Peer& to, Payload payload) {
  const std::size_t index = static_cast<std::size_t>(to.address[1] - '0');
  if (!reach_[from.index][index]) return;
  if (schedule_.wire && std::holds_alternative<Message>(payload)) {
    const Prove prove = [](auto) { return WireProof{}; };
    Channel channel{.job = 1, .own_nonce = {}, .other_nonce = {}, .prove = prove};
    Channel back = channel;
    const std::string bytes = encode(channel, {from.self, to.id, std::get<Message>(payload)});
    payload = decode(back, bytes).message;
  }
  const int copies = (chance(loss_) ? 0 : 1) + (chance(twice_) ? 1 : 0);
  for (int i = 0; i < copies; ++i) at(now_ + delay(), index, Packet{from.self, to, payload});
}

// ---- trouble ----

void World::die(Host& host, bool power_off) {
  if (!host.agent) return;
  note(&host, power_off ? "loses power" : "is killed");
  const NodeId id = host.self.id;
  host.agent.reset();
  host.workers.reset();
  host.learner.reset();
  host.learning = false;
  host.power = !power_off;
  ++outcome_.deaths;
  if (power_off) return;
  for (const auto& other : hosts_) {
    if (other->agent && reach_[host.index][other->index] && chance(0.9)) {
      at(now_ + Time(random(50)), other->index, HearDeath{other->self.id, id});
    }
  }
}

void World::cut() {
  std::vector<bool> side;
  for (std::size_t i = 0; i < hosts_.size(); ++i) side.push_back(chance(0.5));
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    for (std::size_t j = 0; j < hosts_.size(); ++j) reach_[i][j] = side[i] == side[j];
  }
  note(nullptr, "the network is cut");
}

void World::trouble() {
  std::vector<Trouble> kinds{Trouble::kPause, Trouble::kWorkerDies};
  if (schedule_.deaths) {
    kinds.insert(kinds.end(),
                 {Trouble::kKill, Trouble::kKill, Trouble::kPowerOff, Trouble::kLeave});
  }
  if (schedule_.partitions) {
    kinds.insert(kinds.end(), {Trouble::kCut, Trouble::kCutOneLink, Trouble::kJoinNets});
  }
  if (schedule_.alarms) kinds.insert(kinds.end(), 12, Trouble::kFalseAlarm);
  Host& host = *hosts_[random(hosts_.size())];
  switch (kinds[random(kinds.size())]) {
    case Trouble::kKill:
    case Trouble::kPowerOff: {
      die(host, chance(0.4));
      if (chance(0.6)) at(now_ + Time(20 + random(3000)), host.index, Start{});
      return;
    }
    case Trouble::kCut:
      return cut();
    case Trouble::kCutOneLink: {
      const std::size_t other = random(hosts_.size());
      if (other != host.index) reach_[host.index][other] = 0;
      note(&host, fmt::format("does not reach n{}", other));
      return;
    }
    case Trouble::kJoinNets:
      for (auto& row : reach_) std::fill(row.begin(), row.end(), 1);
      note(nullptr, "the network is whole");
      return;
    case Trouble::kPause:
      host.paused_until = now_ + Time(random(2) == 0 ? random(200) : random(4000));
      note(&host, fmt::format("is stopped until {}", host.paused_until.count()));
      return;
    case Trouble::kWorkerDies:
      if (!host.agent || host.ended || now_ < host.paused_until) return;
      note(&host, "loses its workers");
      host.workers->break_down();
      host.agent->workers_changed(now_, 0);
      at(now_ + Time(20 + random(1000)), host.index, WorkersBack{host.self.id});
      return obey(host);
    case Trouble::kFalseAlarm: {
      if (!host.agent || host.ended || now_ < host.paused_until) return;
      note(&host, "suspects whoever is before it");
      std::vector<NodeId> silent;
      for (const Member& member : host.agent->view().members) {
        if (member.peer.id == host.self.id) break;
        silent.push_back(member.peer.id);
      }
      host.agent->step_failed(now_, host.agent->view().number, {}, silent);
      return obey(host);
    }
    case Trouble::kLeave:
      if (!host.agent || host.ended || host.index == 0 || now_ < host.paused_until) return;
      if (std::count_if(hosts_.begin(), hosts_.end(), [](const auto& other) {
            return !other->foreign && !other->gone && !other->leaving;
          }) <= static_cast<int>(bounds_.min_nodes)) {
        return;
      }
      host.leaving = true;
      note(&host, "is told to leave");
      host.agent->leave(now_);
      return obey(host);
  }
}

void World::heal() {
  healed_ = true;
  loss_ = 0;
  longest_delay_ = std::min(longest_delay_, 30);
  note(nullptr, "all is healed");
  for (auto& row : reach_) std::fill(row.begin(), row.end(), 1);
  for (const auto& host : hosts_) {
    if (!host->agent) at(now_ + Time(random(500)), host->index, Start{});
  }
}

// ---- orders ----

void World::obey(Host& host) {
  while (host.agent) {
    std::vector<Order> orders = host.agent->take_orders();
    if (orders.empty()) break;
    for (Order& order : orders) {
      std::visit([&](auto& o) { on(host, o); }, order);
      if (!host.agent) return;
    }
  }
  if (!host.agent) return;
  const Time wake = host.agent->next_wake();
  if (wake < host.wakes_at) {
    host.wakes_at = wake;
    at(std::max(wake, now_), host.index, WakeAgent{host.self.id});
  }
}

void World::on(Host& host, Send& order) {
  if (schedule_.trace) {
    const char* const names[] = {"Ask",    "Told",    "Propose", "Answer",  "Offer",
                                 "Accept", "Install", "Beat",    "Suspect", "Ended"};
    if (order.message.index() != 7) {
      note(&host, fmt::format("→ {} {}", order.to.address, names[order.message.index()]));
    }
  }
  post(host, order.to, std::move(order.message));
}

void World::on(Host& host, StopWorkers&) {
  at(now_ + Time(random(20)), host.index, Stopped{host.self.id});
}

void World::on(Host& host, RunView& order) {
  std::string members;
  for (const Member& m : order.view.members) members += " " + m.peer.address;
  note(&host, fmt::format("runs view {} from step {}:{}{}", order.view.number.counter,
                          order.view.step, members, order.view.paused ? " (paused)" : ""));
  host.learner.reset();
  host.learning = false;
  check_installed(host, order.view);
  host.workers->run(now_, order.view);
}

void World::on(Host& host, Learn& order) {
  if (schedule_.levelled) return;  // as tandem run
  if (!host.learner) {
    note(&host, fmt::format("learns step {}", order.step));
    const CatchUpOptions options{.chunks = kChunks, .window = 2};
    if (breaks_.any_gradient)
      host.learner = std::make_unique<BadCatchUp>(options);
    else
      host.learner = std::make_unique<CatchUp>(options);
  }
  std::vector<Peer> senders;
  for (const Member& member : order.view.members) senders.push_back(member.peer);
  host.learner->job_at(order.view.number, order.step, senders);
  host.learning = true;
  ask_for_chunks(host);
}

void World::ask_for_chunks(Host& host) {
  for (CatchUp::Request& request : host.learner->requests(now_)) {
    post(host, request.to, Message(std::move(request.fetch)));
  }
  const Time wake = std::max(host.learner->next_wake(), now_ + Time(1));
  if (host.learner_wakes_at > now_ && host.learner_wakes_at <= wake) return;
  host.learner_wakes_at = wake;
  at(wake, host.index, WakeLearner{host.self.id});
}

void World::tell_learned(Host& host) {
  note(&host, fmt::format("holds {} of steps {}", host.workers->whole() ? "all" : "parts",
                          fmt::join(host.workers->steps(), " ")));
  host.agent->learned(now_, host.workers->step(), host.workers->whole());
}

void World::serve(Host& host, const Peer& to, const Fetch& fetch) {
  host.subscribers[to.id] = {to, fetch.subscribed, now_ + Time(2000)};
  for (const std::uint32_t k : fetch.chunks) {
    if (k >= kChunks) continue;
    post(host, to, ChunkData{{k, host.workers->steps()[k], 8}, host.workers->weights()[k]});
  }
}

void World::on(Host& host, SaveCheckpoint& order) {
  if (host.foreign || host.workers->step() != order.step || !host.workers->whole()) return;
  check_bits(host);
  checkpoint_ = std::max(checkpoint_, order.step);
}

void World::on(Host& host, LoadCheckpoint&) {
  for (std::size_t k = 0; k < kChunks; ++k) {
    host.workers->store_chunk(k, checkpoint_, reference_[checkpoint_][k]);
  }
  host.learner.reset();
  host.learning = false;
  host.agent->loaded(now_, checkpoint_);
}

void World::on(Host& host, TakeLock&) {
  if (lock_holder_ != 0 && lock_holder_ != host.self.id) return;
  if (!reach_[host.index][lock_side_]) return;
  lock_holder_ = host.self.id;
  host.agent->lock(now_, true);
}

void World::on(Host& host, DropLock&) {
  if (lock_holder_ == host.self.id) lock_holder_ = 0;
}

// The lease: lost by who does not reach the service for a second.
void World::happen(Host&, LockCheck&) {
  at(now_ + Time(100), lock_side_, LockCheck{});
  Host* holder = nullptr;
  for (const auto& host : hosts_) {
    if (host->agent && host->self.id == lock_holder_) holder = host.get();
  }
  if (lock_holder_ == 0 || (holder && reach_[holder->index][lock_side_])) {
    lock_lost_ = kNever;
    return;
  }
  if (lock_lost_ == kNever) lock_lost_ = now_ + Time(1000);
  if (now_ < lock_lost_) return;
  lock_holder_ = 0;
  lock_lost_ = kNever;
  if (!holder) return;
  holder->agent->lock(now_, false);
  obey(*holder);
}

void World::on(Host& host, End& order) {
  note(&host, fmt::format("ends with {} {}", order.code, order.message));
  host.ended = order.code;
  if (lock_holder_ == host.self.id) lock_holder_ = 0;
  const bool refused = order.message.find("refused") != std::string::npos;
  if (host.foreign ? !(refused || order.code != 1 || poison_) : refused) {
    violation(&host, "joining: " + order.message);
  }
  if (order.code == 1 && !host.foreign && !poison_) violation(&host, "ended: " + order.message);
  if (order.code == 143 || host.foreign) {
    host.gone = true;
    host.agent.reset();
    host.workers.reset();
    host.learner.reset();
    host.learning = false;
    ++outcome_.deaths;
  }
}

// ---- invariants ----

void World::log_step(std::uint64_t step, std::uint64_t loss) {
  auto& [logged, entries] = log_[step];
  if (entries == 0 || breaks_.write_again) ++entries;
  if (entries == 1) logged = loss;
  if (entries > 1) violation(nullptr, "log: a step was written twice");
}

void World::check_installed(const Host& host, const View& view) {
  const auto [it, first] = installed_.emplace(view.number, view);
  if (!first && it->second != view) violation(&host, "one view per number: two differ");
  const Member* own = view.find(host.self.id);
  if (!own) return violation(&host, "one view per number: runs a view that it is not in");
  if (!host.workers->whole() || host.workers->step() != own->step) {
    violation(&host, "nothing lost: does not hold what it answered");
  }
  if (view.step < own->step) violation(&host, "nothing lost: the view starts below a member");
  if (!schedule_.levelled && view.step > own->step + 1)
    violation(&host, "nothing lost: a member is far behind");
  if (!view.paused && view.members.size() < bounds_.min_nodes) {
    violation(&host, "min: too few nodes compute");
  }
  if (!first || outcome_.deaths > 0 || lock_) return;
  const auto follows = [](const View& later, ViewNumber number) {
    return std::find(later.after.begin(), later.after.end(), number) != later.after.end();
  };
  for (const auto& [number, other] : installed_) {
    if (number == view.number) continue;
    const View& early = number < view.number ? other : view;
    const View& late = number < view.number ? view : other;
    const bool share = std::any_of(early.after.begin(), early.after.end(),
                                   [&](ViewNumber n) { return follows(late, n); });
    if (share && !follows(late, early.number)) {
      violation(&host, fmt::format("one view per number: views {} and {} follow the same one",
                                   early.number.counter, late.number.counter));
    }
  }
}

void World::check_bits(const Host& host) {
  if (host.foreign) return;
  const auto& at = host.workers->steps();
  for (std::size_t k = 0; k < kChunks; ++k) {
    if (at[k] > steps_ || host.workers->weights()[k] != reference_[at[k]][k]) {
      return violation(&host,
                       fmt::format("bits: chunk {} is not the reference's of step {}", k, at[k]));
    }
  }
}

void World::check_after(const Host& host) {
  if (!host.agent) return;
  check_bits(host);
  if (!host.ended && host.agent->waiting_for().empty()) {
    violation(&host, "named waits: it does not say what it waits for");
  }
}

bool World::finished() const {
  bool anybody = false;
  for (const auto& host : hosts_) {
    if (host->gone) continue;
    if (!host->agent || !host->ended) return false;
    anybody = true;
  }
  return anybody || healed_;
}

}  // namespace

Outcome run(const Schedule& schedule, const membership::Rules& rules, const Breaks& breaks) {
  return World(schedule, rules, breaks).run();
}

Outcome run(const Schedule& schedule) {
  if (schedule.levelled) return run(schedule, membership::LevelledInViews());
  return run(schedule, membership::Rules());
}

}  // namespace tandem::simulation
