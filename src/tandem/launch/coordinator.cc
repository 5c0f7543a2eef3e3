#include "tandem/launch/coordinator.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;

// Time for which a failure waits for others that may explain it, before the job ends with it.
constexpr milliseconds kSettle{500};
constexpr int kFailed = 1;

std::string plural(std::size_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

Order order_of(Order::Kind kind, const std::string& text = "") {
  Order order;
  order.kind = kind;
  order.text = text;
  return order;
}

}  // namespace

Coordinator::Coordinator(JobRules rules, Clock::time_point now)
    : rules_(std::move(rules)), last_arrival_(now), gathering_since_(now) {}

Coordinator::AgentId Coordinator::arrive(AgentInfo info, Clock::time_point now) {
  if (info.run_id != rules_.run_id) {
    raise<ConfigError>("this is the job '{}' and not '{}' (--rdzv-id); two jobs need two ports",
                       rules_.run_id, info.run_id);
  }
  if (phase_ == Phase::kEnded) raise<ConfigError>("the job has ended");
  if (rules_.fixed_places) {
    if (info.node_rank < 0 || info.node_rank >= rules_.max_nodes) {
      raise<ConfigError>("--node-rank {} of a job of {} (--nnodes)", info.node_rank,
                         plural(static_cast<std::size_t>(rules_.max_nodes), "node"));
    }
    for (const auto& [id, agent] : agents_) {
      if (agent.info.node_rank == info.node_rank)
        raise<ConfigError>("--node-rank {} is taken by {} (pid {}); each node needs its own",
                           info.node_rank, agent.info.host, agent.info.pid);
    }
  }
  last_arrival_ = now;
  agents_[next_].info = std::move(info);
  return next_++;
}

void Coordinator::ready(AgentId agent, Clock::time_point now) {
  agents_.at(agent).state = State::kReady;
  tick(now);
}

void Coordinator::succeeded(AgentId agent, Clock::time_point now) {
  AgentRecord& one = agents_.at(agent);
  if (one.state == State::kRunning) one.state = State::kSucceeded;
  tick(now);
}

void Coordinator::failed(AgentId agent, std::vector<Failure> failures, bool final,
                         Clock::time_point now) {
  AgentRecord& one = agents_.at(agent);
  if (!one.member || (phase_ != Phase::kRunning && phase_ != Phase::kFailing)) return;
  one.state = State::kFailed;
  final_failure_ |= final;
  failures_.insert(failures_.end(), failures.begin(), failures.end());
  if (phase_ == Phase::kRunning) failing_since_ = now;
  phase_ = Phase::kFailing;
  tick(now);
}

void Coordinator::gone(AgentId id, const std::string& reason, Clock::time_point now) {
  const auto found = agents_.find(id);
  if (found == agents_.end()) return;
  const AgentRecord agent = std::move(found->second);
  agents_.erase(found);
  if (agent.member && phase_ == Phase::kRunning) lose_member(agent, reason, now);
  tick(now);
}

// A job of fixed size cannot continue without the node, and restarts are counted.
void Coordinator::lose_member(const AgentRecord& agent, const std::string& reason,
                              Clock::time_point now) {
  const std::string text =
      fmt::format("{} (pid {}) is gone: {}", agent.info.host, agent.info.pid, reason);
  if (rules_.min_nodes < rules_.max_nodes) return gather(text, now);
  if (restarts_ < rules_.max_restarts) {
    ++restarts_;
    return gather(fmt::format("{}; restart {} of {}", text, restarts_, rules_.max_restarts), now);
  }
  end(kFailed, fmt::format("{}; the job needs all {} nodes and {}", text, rules_.min_nodes,
                           rules_.max_restarts == 0
                               ? "may not be restarted (--max-restarts 0)"
                               : fmt::format("all {} restarts are used", rules_.max_restarts)));
}

std::size_t Coordinator::num_members() const {
  return static_cast<std::size_t>(std::count_if(
      agents_.begin(), agents_.end(), [](const auto& entry) { return entry.second.member; }));
}

bool Coordinator::all_members(State state) const {
  return std::all_of(agents_.begin(), agents_.end(), [&](const auto& entry) {
    return !entry.second.member || entry.second.state == state;
  });
}

// In the order of their positions.
std::vector<Coordinator::AgentId> Coordinator::ready_agents() const {
  std::vector<AgentId> ready;
  for (const auto& [id, agent] : agents_) {
    if (agent.state == State::kReady) ready.push_back(id);
  }
  if (rules_.fixed_places) {
    std::sort(ready.begin(), ready.end(), [this](AgentId a, AgentId b) {
      return agents_.at(a).info.node_rank < agents_.at(b).info.node_rank;
    });
  }
  if (ready.size() > static_cast<std::size_t>(rules_.max_nodes))
    ready.resize(static_cast<std::size_t>(rules_.max_nodes));
  return ready;
}

bool Coordinator::round_is_due(Clock::time_point now) const {
  const std::size_t ready = ready_agents().size();
  if (ready == static_cast<std::size_t>(rules_.max_nodes)) return true;
  if (rules_.fixed_places || ready < static_cast<std::size_t>(rules_.min_nodes)) return false;
  const bool all_ready = std::all_of(agents_.begin(), agents_.end(), [](const auto& entry) {
    return entry.second.state == State::kReady;
  });
  return all_ready && now - last_arrival_ >= rules_.last_call;
}

void Coordinator::begin_round() {
  const std::vector<AgentId> members = ready_agents();
  ++round_;
  failures_.clear();
  RankAssignment assignment{.round = round_,
                            .restart_count = restarts_,
                            .group_size = static_cast<int>(members.size()),
                            .world_size = 0,
                            .master_addr = rules_.master_addr,
                            .master_port = rules_.master_port};
  std::map<std::string, int> role_sizes;
  for (const AgentId id : members) {
    assignment.world_size += agents_[id].info.workers;
    role_sizes[agents_[id].info.role] += agents_[id].info.workers;
  }
  std::map<std::string, int> role_ranks;
  for (const AgentId id : members) {
    AgentRecord& agent = agents_[id];
    assignment.first_role_rank = role_ranks[agent.info.role];
    assignment.role_world_size = role_sizes[agent.info.role];
    Order order = order_of(Order::Kind::kStart);
    order.assignment = assignment;
    orders_.emplace_back(id, std::move(order));
    agent.member = true;
    agent.state = State::kRunning;
    role_ranks[agent.info.role] += agent.info.workers;
    assignment.first_rank += agent.info.workers;
    ++assignment.group_rank;
  }
  phase_ = Phase::kRunning;
}

void Coordinator::gather(const std::string& reason, Clock::time_point now) {
  for (auto& [id, agent] : agents_) {
    if (!agent.member) continue;
    agent.member = false;
    agent.state = State::kArrived;
    orders_.emplace_back(id, order_of(Order::Kind::kStop, reason));
  }
  phase_ = Phase::kGathering;
  gathering_since_ = now;
}

// Nodes that join while workers run: all restart with them, once no more join.
void Coordinator::welcome_newcomers(Clock::time_point now) {
  std::vector<std::string> hosts;
  const bool room = num_members() < static_cast<std::size_t>(rules_.max_nodes);
  for (auto& [id, agent] : agents_) {
    if (agent.member || agent.state != State::kReady) continue;
    hosts.push_back(agent.info.host);
    if (room || agent.full_logged) continue;
    agent.full_logged = true;
    orders_.emplace_back(
        id, order_of(Order::Kind::kNote,
                     fmt::format("the job has its {} nodes (--nnodes); waiting until one of them "
                                 "leaves",
                                 rules_.max_nodes)));
  }
  if (room && !hosts.empty() && now - last_arrival_ >= rules_.last_call)
    gather(fmt::format("{} joins", fmt::join(hosts, ", ")), now);
}

void Coordinator::settle_failure(Clock::time_point now) {
  const bool restart = !final_failure_ && restarts_ < rules_.max_restarts;
  const bool all_said = all_members(State::kFailed);
  if (!all_said && now - failing_since_ < kSettle) return;
  const Failure& root = root_failure(failures_);
  if (restart) {
    ++restarts_;
    return gather(
        fmt::format("restart {} of {}: {}", restarts_, rules_.max_restarts, describe(root)), now);
  }
  end(rules_.own_job ? root.ending.exit_code() : kFailed, "");
}

void Coordinator::end(int exit_code, const std::string& text) {
  for (const auto& [id, agent] : agents_) {
    Order order = order_of(Order::Kind::kEnd, text);
    order.exit_code = exit_code;
    order.failures = failures_;
    orders_.emplace_back(id, std::move(order));
  }
  phase_ = Phase::kEnded;
}

std::string Coordinator::missing() const {
  if (!rules_.fixed_places) return "";
  std::vector<int> ranks;
  for (int rank = 0; rank < rules_.max_nodes; ++rank) {
    if (std::none_of(agents_.begin(), agents_.end(),
                     [&](const auto& entry) { return entry.second.info.node_rank == rank; })) {
      ranks.push_back(rank);
    }
  }
  return fmt::format("; node rank {} did not come", fmt::join(ranks, ", "));
}

void Coordinator::check_join_timeout(Clock::time_point now) {
  if (now - gathering_since_ < rules_.join_timeout) return;
  end(kFailed,
      fmt::format("{} of at least {} nodes came within {} s{}; are the others started with "
                  "the same --rdzv-endpoint or --master-addr?",
                  agents_.size(), rules_.fixed_places ? rules_.max_nodes : rules_.min_nodes,
                  rules_.join_timeout.count() / 1000, missing()));
}

void Coordinator::tick(Clock::time_point now) {
  if (phase_ == Phase::kFailing) settle_failure(now);
  if (phase_ == Phase::kRunning) {
    if (all_members(State::kSucceeded)) return end(0, "");
    welcome_newcomers(now);
  }
  if (phase_ != Phase::kGathering) return;
  if (round_is_due(now)) return begin_round();
  if (!agents_.empty()) check_join_timeout(now);
}

Coordinator::Clock::time_point Coordinator::next_due(Clock::time_point now) const {
  const auto after = [&](Clock::time_point due) { return std::max(due, now + milliseconds(1)); };
  switch (phase_) {
    case Phase::kFailing:
      return after(failing_since_ + kSettle);
    case Phase::kGathering:
    case Phase::kRunning:
      return now - last_arrival_ < rules_.last_call ? after(last_arrival_ + rules_.last_call)
                                                    : after(gathering_since_ + rules_.join_timeout);
    case Phase::kEnded:
      break;
  }
  return now + std::chrono::hours(1);
}

}  // namespace tandem::launch
