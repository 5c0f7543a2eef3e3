// The world of simulation.h: its hosts, what happens to them, and what the seed lets go wrong.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "membership/simulation.h"
#include "membership/toy_workers.h"
#include "tandem/elastic/protocol/joining.h"
#include "tandem/elastic/protocol/membership.h"
#include "tandem/elastic/transfer/learner_ledger.h"

namespace tandem::simulation {

using namespace membership;

// Over the connection from a source to a learner, which keeps the order: of a chunk as it is after
// `step`, or of its gradient.
struct TransferMessage {
  std::uint64_t stream = 0;
  std::uint64_t number = 0;  // within the stream
  bool gradient = false;
  std::size_t chunk = 0;
  std::uint64_t step = 0;
  std::uint64_t value = 0;
};
using Payload = std::variant<Message, Frame, TransferMessage>;

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
struct ServeState {
  NodeId id = 0;
};
// One of the ends of a stream is gone.
struct StreamEnds {
  NodeId id = 0;
  std::uint64_t stream = 0;
};
// The source has not come.
struct NobodyServesState {
  NodeId id = 0;
  std::uint64_t stream = 0;
};
struct Stopped {
  NodeId id = 0;
};
struct DeathReport {
  NodeId id = 0, dead = 0;
};
struct NoAnswer {
  NodeId id = 0;
  std::string address;
};
struct WorkersBack {
  NodeId id = 0;
};
struct Start {};  // an agent process on the host
struct LockCheck {};
using Happening =
    std::variant<Packet, WakeAgent, WakeWorkers, ServeState, StreamEnds, NobodyServesState, Stopped,
                 DeathReport, NoAnswer, WorkersBack, Start, LockCheck>;

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

class World;

// A machine, and the agent process on it, if there is one.
struct Host final : Surroundings {
  Host(World& w, std::size_t i) : world(w), index(i) {}
  void send(const Peer& to, const Frame& frame) override;
  void wake_after(Time delay) override;
  Time random_delay(int least, int most) override;
  bool poisoned(std::uint64_t step, std::uint32_t begin, std::uint32_t end) override;
  void worker_failed(std::uint64_t step) override;
  void applied(ViewNumber view, std::uint64_t step, bool reconfiguration_point) override;
  void reduced(std::uint64_t step, const Values& gradient) override;
  void settled(std::uint64_t step) override;
  const Values* learned(std::uint64_t step) override;
  bool learns() override { return learner.has_value(); }
  void learned_counts() override;
  void step_failed(ViewNumber view, const std::vector<NodeId>& silent) override;
  void violation(const std::string& what) override;
  void end_process();

  using Ledger = std::unique_ptr<elastic::LearnerLedger>;
  // A learner that this node's workers serve, and what it has.
  struct Pupil {
    Peer peer;
    std::uint64_t stream = 0;
    std::uint64_t sent = 0;
    Ledger ledger;
    Time last{};  // something arrives
  };
  // State of this node as a learner.
  struct Learner {
    Peer source;
    std::uint64_t stream = 0;
    std::uint64_t received = 0;
    Ledger ledger;
    Values values{};
  };

  World& world;
  std::size_t index;
  bool power = true;
  bool foreign = false;
  bool leaving = false;
  bool gone = false;  // has left for good
  Time paused_until{};
  // State of the process:
  Peer self;
  std::unique_ptr<Membership> membership;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<Joining> joining;
  std::optional<Learner> learner;
  std::vector<Pupil> pupils;
  bool ready = false;  // its workers
  bool begun = false;  // has been in a view
  bool teaches = false;
  Time wakes_at = kNever;
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
  void happen(Host& host, ServeState& serve_state);
  void happen(Host& host, StreamEnds& end);
  void happen(Host& host, NobodyServesState& late);
  void happen(Host& host, Stopped& stopped);
  void happen(Host& host, DeathReport& news);
  void happen(Host& host, NoAnswer& news);
  void happen(Host& host, WorkersBack& back);
  void happen(Host& host, Start& start);
  void happen(Host& host, LockCheck& check);
  void send(Host& from, const Peer& to, const Message& message);
  void post(Host& from, const Peer& to, const Payload& payload);
  void refuse(const Packet& packet, const Host& by);
  void deliver(Host& host, const Packet& packet);

  // ---- trouble ----
  std::vector<Trouble> kinds_of_trouble() const;
  void trouble();
  void heal();
  bool can_act(const Host& host) const;
  void die(Host& host, bool power_off);
  void cut();
  void cut_one_link(Host& host);
  void join_nets();
  void pause(Host& host);
  void lose_workers(Host& host);
  void suspect_falsely(Host& host);
  void leave(Host& host);

  // ---- orders: what a host's agent asks for ----
  void obey(Host& host);
  void on(Host& host, Send& order);
  void on(Host& host, StopWorkers&);
  void on(Host& host, RunView& order);
  void on(Host& host, AskReconfigurationPoint&) { host.workers->ask_reconfiguration_point(); }
  void on(Host& host, Learn& order);
  void on(Host& host, SaveCheckpoint& order);
  void on(Host& host, Refused& order);
  void on(Host& host, TakeLock&);
  void on(Host& host, DropLock&);
  void on(Host& host, End& order);
  void log_step(std::uint64_t step, std::uint64_t loss);

  // ---- a node that learns (simulated_learning.cc) ----
  void report_workers(Host& host);
  void fail_to_learn(Host& host);
  Host::Ledger new_ledger() const;
  void begin_to_serve_state(Host& host, const Peer& learner, std::uint64_t stream);
  void send_transfer(Host& host, Host::Pupil& pupil, TransferMessage transfer);
  void take(Host& host, const Peer& from, const TransferMessage& transfer);
  void end_stream(Host& host, std::uint64_t stream);
  void end_transfers(Host& host);

  // ---- invariants ----
  void violation(const Host* host, const std::string& what);
  void check_installed(const Host& host, const View& view);
  void check_bits(const Host& host);
  void check_after(const Host& host);
  bool finished() const;
  std::string waits() const;  // what every agent waits for
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
  std::uint64_t streams_ = 0;
  double loss_ = 0;
  double twice_ = 0;
  int longest_delay_ = 1;
  std::optional<std::uint64_t> poison_;
  bool lock_ = false;
  NodeId lock_holder_ = 0;
  std::size_t lock_side_ = 0;  // the host with the lock's service
  Time lock_lost_ = kNever;
  std::vector<std::uint64_t> troubles_;  // at these numbers of events
  std::vector<Time> timed_troubles_;
  bool healed_ = false;
  Outcome outcome_;
};

}  // namespace tandem::simulation
