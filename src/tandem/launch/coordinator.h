// Decides which agents are in a job, and what each has to do: rounds of workers, restarts, the end.
// A state machine without sockets and without a clock: messages and the time are inputs, orders are
// outputs.
//
// The rules are torchrun's for programs other than tandem's own. A failed worker is restarted
// together with all others (--max-restarts times in total). Nodes that join while there is room
// restart all others, which is not counted. Unlike torchrun, the coordinator detects a lost node as
// soon as its connection ends, and does not wait a fixed time for more nodes. A round begins with
// the maximum number of nodes, or with at least the minimum if no other has joined for `last_call`.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/launch/failure.h"

namespace tandem::launch {

// The self-description of a joining agent.
struct AgentInfo {
  std::string run_id;
  std::string host;
  pid_t pid = 0;
  int workers = 1;  // workers that it starts
  std::string role;
  int node_rank = -1;  // static: its position; otherwise -1
};

// A node's position in a round.
struct RankAssignment {
  int round = 0;
  int restart_count = 0;
  int group_rank = 0;  // of the node
  int group_size = 1;
  int first_rank = 0;  // of its workers
  int world_size = 1;
  int first_role_rank = 0;
  int role_world_size = 1;
  std::string master_addr;
  int master_port = 0;
};

struct Order {
  enum class Kind {
    kStart,  // start workers, at `assignment`
    kStop,   // stop the workers, because of `text`; then report that the node is ready
    kEnd,    // the job is over with `exit_code`
    kNote,   // log `text` for users
  };
  Kind kind = Kind::kNote;
  RankAssignment assignment;
  std::string text;
  int exit_code = 0;
  std::vector<Failure> failures;  // of all nodes, if the job failed
};

struct JobRules {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  bool fixed_places = false;  // static: node ranks decide
  bool own_job = false;       // a failing worker's exit code is the job's
  std::string run_id;
  std::string master_addr;
  int master_port = 0;
  std::chrono::milliseconds last_call{2000};
  std::chrono::milliseconds join_timeout{600000};
};

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;
  using AgentId = int;

  Coordinator(JobRules rules, Clock::time_point now);

  // The first agent to join hosts this coordinator; its workers have the first ranks. Throws
  // ConfigError with the reason why the joining agent cannot take part.
  AgentId arrive(AgentInfo info, Clock::time_point now);
  void ready(AgentId agent, Clock::time_point now);
  // `final`: no restart would help (a wrong flag, bad data).
  void failed(AgentId agent, std::vector<Failure> failures, bool final, Clock::time_point now);
  void succeeded(AgentId agent, Clock::time_point now);
  // The agent has left or is lost, with the reason: "its connection ended".
  void gone(AgentId agent, const std::string& reason, Clock::time_point now);
  // Orders that are due; call it after every event and at `next_due`.
  void tick(Clock::time_point now);
  Clock::time_point next_due(Clock::time_point now) const;

  std::vector<std::pair<AgentId, Order>> take_orders() { return std::exchange(orders_, {}); }
  bool ended() const { return phase_ == Phase::kEnded; }

 private:
  enum class Phase { kGathering, kRunning, kFailing, kEnded };
  enum class State { kArrived, kReady, kRunning, kSucceeded, kFailed };
  struct AgentRecord {
    AgentInfo info;
    State state = State::kArrived;
    bool member = false;  // of the round
    bool full_logged = false;
  };

  std::vector<AgentId> ready_agents() const;
  bool round_is_due(Clock::time_point now) const;
  void begin_round();
  void gather(const std::string& reason, Clock::time_point now);
  void welcome_newcomers(Clock::time_point now);
  void settle_failure(Clock::time_point now);
  void end(int exit_code, const std::string& text);
  void lose_member(const AgentRecord& agent, const std::string& reason, Clock::time_point now);
  void check_join_timeout(Clock::time_point now);
  std::size_t num_members() const;
  bool all_members(State state) const;
  std::string missing() const;

  JobRules rules_;
  Phase phase_ = Phase::kGathering;
  std::map<AgentId, AgentRecord> agents_;
  AgentId next_ = 0;
  int round_ = 0;
  int restarts_ = 0;
  std::vector<Failure> failures_;  // of this round
  bool final_failure_ = false;
  Clock::time_point last_arrival_;
  Clock::time_point gathering_since_;
  Clock::time_point failing_since_;
  std::vector<std::pair<AgentId, Order>> orders_;
};

}  // namespace tandem::launch
